package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** A push consumer. Verbs: id, assignment, total, stop. */
final class PushMember implements Actor {
    private final DefaultMQPushConsumer consumer;
    private final Intake intake;
    private final long pauseMillis;
    private final int failTimes;

    PushMember(JSONObject settings, Wire wire) throws Exception {
        intake = new Intake(settings, wire);
        pauseMillis = Math.round(settings.getDoubleValue("pause") * 1000);
        failTimes = settings.getIntValue("fail_times");
        consumer = new DefaultMQPushConsumer(settings.getString("group"));
        consumer.setNamesrvAddr(settings.getString("namesrv"));
        consumer.setInstanceName(settings.getString("instance"));
        consumer.setAllocateMessageQueueStrategy(Strategies.make(settings.getString("strategy"), settings));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(settings.getString("begin")));
        consumer.setMessageModel(MessageModel.valueOf(settings.getString("model")));
        consumer.setConsumeMessageBatchMaxSize(settings.getIntValue("batch", 1));
        for (Map.Entry<String, MessageSelector> subscription : Wire.readSubscriptions(settings).entrySet()) {
            consumer.subscribe(subscription.getKey(), subscription.getValue());
        }
        if (settings.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> take(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> take(messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
    }

    private boolean take(List<MessageExt> messages) {
        intake.add(messages);
        if (pauseMillis > 0) {
            try {
                Thread.sleep(pauseMillis);
            } catch (InterruptedException ended) {
                return false;
            }
        }
        return messages.get(0).getReconsumeTimes() >= failTimes;
    }

    @Override
    public Object act(String verb, JSONObject arguments) {
        switch (verb) {
            case "id":
                return consumer.buildMQClientId();
            case "assignment":
                return Wire.queues(
                    consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            case "total":
                return intake.total();
            case "stop":
                consumer.shutdown();
                return null;
            default:
                throw Actor.unknown(verb);
        }
    }
}
