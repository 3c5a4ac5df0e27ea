package evenq;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer of transactions. Verbs: id, send (each message, with what becomes of its transaction at first), stop.
 *
 * <p>What a broker asks about is reported as messages are, and answered with {@code checked} of the settings.
 */
final class Transactions implements Actor {
    private final TransactionMQProducer producer;

    Transactions(JSONObject settings, Wire wire) throws Exception {
        producer = new TransactionMQProducer(settings.getString("group"));
        producer.setNamesrvAddr(settings.getString("namesrv"));
        producer.setInstanceName(settings.getString("instance"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return LocalTransactionState.valueOf((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                wire.messages(settings.getString("actor"), List.of(message));
                return LocalTransactionState.valueOf(settings.getString("checked"));
            }
        });
        producer.start();
    }

    @Override
    public Object act(String verb, JSONObject arguments) throws Exception {
        switch (verb) {
            case "id":
                return producer.buildMQClientId();
            case "send":
                return send(arguments.getJSONArray("messages"), arguments.getString("state"));
            case "stop":
                producer.shutdown();
                return null;
            default:
                throw Actor.unknown(verb);
        }
    }

    /** The ids of the messages: that is all a transaction's receipt has. */
    private List<String> send(JSONArray messages, String state) throws Exception {
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Message message = Wire.readMessage(messages.getJSONObject(i));
            ids.add(producer.sendMessageInTransaction(message, state).getMsgId());
        }
        return ids;
    }
}
