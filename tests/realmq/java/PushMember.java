package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** A push consumer, which may reply to what it gets. Verbs: id, assignment, total, stop. */
final class PushMember implements Actor {
    private final DefaultMQPushConsumer consumer;
    private final Intake intake;
    private final long pauseMillis;
    private final int failTimes;
    private final DefaultMQProducer replier;

    PushMember(JSONObject settings, Wire wire) throws Exception {
        intake = new Intake(settings, wire);
        pauseMillis = Math.round(settings.getDoubleValue("pause") * 1000);
        failTimes = settings.getIntValue("fail_times");
        replier = settings.getBooleanValue("reply") ? replier(settings) : null;
        consumer = new DefaultMQPushConsumer(settings.getString("group"));
        consumer.setNamesrvAddr(settings.getString("namesrv"));
        consumer.setInstanceName(settings.getString("instance"));
        consumer.setAllocateMessageQueueStrategy(Strategies.make(settings.getString("strategy"), settings));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(settings.getString("begin")));
        consumer.setMessageModel(MessageModel.valueOf(settings.getString("model")));
        consumer.setMaxReconsumeTimes(settings.getIntValue("max_times", -1));
        consumer.setConsumeMessageBatchMaxSize(settings.getIntValue("batch", 1));
        consumer.setEnableTrace(settings.getBooleanValue("trace"));
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

    private static DefaultMQProducer replier(JSONObject settings) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(settings.getString("group") + "-replies");
        producer.setNamesrvAddr(settings.getString("namesrv"));
        producer.setInstanceName(settings.getString("instance") + "-replies");
        producer.start();
        return producer;
    }

    /** Sends the body of each message back, in capitals. */
    private void reply(List<MessageExt> messages) {
        try {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8).toUpperCase(Locale.ROOT);
                replier.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private boolean take(List<MessageExt> messages) {
        intake.add(messages);
        if (replier != null) {
            reply(messages);
        }
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
                if (replier != null) {
                    replier.shutdown();
                }
                consumer.shutdown();
                return null;
            default:
                throw Actor.unknown(verb);
        }
    }
}
