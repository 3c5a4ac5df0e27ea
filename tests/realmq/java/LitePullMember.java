package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A lite pull consumer that polls for ever, with the offsets committed by itself. Verbs: id, assignment, total, stop. */
final class LitePullMember implements Actor {
    private final DefaultLitePullConsumer consumer;
    private final Intake intake;
    private final Thread polling = new Thread(this::poll, "polling");
    private volatile boolean stopped;

    LitePullMember(JSONObject settings, Wire wire) throws Exception {
        intake = new Intake(settings, wire);
        consumer = new DefaultLitePullConsumer(settings.getString("group"));
        consumer.setNamesrvAddr(settings.getString("namesrv"));
        consumer.setInstanceName(settings.getString("instance"));
        consumer.setAllocateMessageQueueStrategy(Strategies.make(settings.getString("strategy"), settings));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(settings.getString("begin")));
        consumer.setPullBatchSize(settings.getIntValue("batch", 10));
        for (Map.Entry<String, MessageSelector> subscription : Wire.readSubscriptions(settings).entrySet()) {
            consumer.subscribe(subscription.getKey(), subscription.getValue());
        }
        consumer.start();
        polling.setDaemon(true);
        polling.start();
    }

    private void poll() {
        while (!stopped) {
            List<MessageExt> messages = consumer.poll(200);
            if (!messages.isEmpty()) {
                intake.add(messages);
            }
        }
    }

    @Override
    public Object act(String verb, JSONObject arguments) throws Exception {
        switch (verb) {
            case "id":
                return consumer.buildMQClientId();
            case "assignment":
                return Wire.queues(consumer.assignment());
            case "total":
                return intake.total();
            case "stop":
                stopped = true;
                polling.join();
                consumer.shutdown();
                return null;
            default:
                throw Actor.unknown(verb);
        }
    }
}
