package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** The Java broker's SQL92 filters, without a broker round them. */
final class Sql {
    private Sql() {
    }

    /** For each expression whether each message matches; null for an expression that is refused. */
    static List<List<Boolean>> matches(JSONObject command) {
        List<MessageEvaluationContext> messages = new ArrayList<>();
        for (Object properties : command.getJSONArray("messages")) {
            Map<String, String> texts = new HashMap<>();
            ((JSONObject) properties).forEach((name, value) -> texts.put(name, (String) value));
            messages.add(new MessageEvaluationContext(texts));
        }
        List<List<Boolean>> answers = new ArrayList<>();
        for (String expression : command.getList("expressions", String.class)) {
            answers.add(matches(expression, messages));
        }
        return answers;
    }

    private static List<Boolean> matches(String expression, List<MessageEvaluationContext> messages) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(expression);
        } catch (MQFilterException refused) {
            return null;
        }
        List<Boolean> found = new ArrayList<>();
        for (MessageEvaluationContext message : messages) {
            found.add(matches(compiled, message));
        }
        return found;
    }

    private static boolean matches(Expression expression, MessageEvaluationContext message) {
        try {
            return Boolean.TRUE.equals(expression.evaluate(message));
        } catch (Throwable incomparable) {
            // the broker logs it and goes on as if the message did not match
            return false;
        }
    }
}
