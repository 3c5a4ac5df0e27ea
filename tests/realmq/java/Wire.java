package evenq;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What goes over the pipes: lines out, and RocketMQ's values in the JSON form of evenq's own values. */
final class Wire {
    private final PrintStream out;

    Wire(PrintStream out) {
        this.out = out;
    }

    void reply(long id, Object value) {
        line(fields("type", "reply", "id", id, "value", value));
    }

    void failure(long id, String error) {
        line(fields("type", "failure", "id", id, "error", error));
    }

    void messages(String actor, List<MessageExt> messages) {
        Instant now = Instant.now(); // finer than a millisecond, for measurements
        double at = now.getEpochSecond() + now.getNano() / 1e9;
        List<Object> views = new ArrayList<>(messages.size());
        for (MessageExt message : messages) {
            views.add(view(message));
        }
        line(fields("type", "messages", "actor", actor, "at", at, "messages", views));
    }

    private void line(Object value) {
        String text = JSON.toJSONString(value);
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }

    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    /** JavaView in host.py, of which it makes an evenq.MessageView. */
    private static Map<String, Object> view(MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        return fields(
            "topic", message.getTopic(),
            "body", Base64.getEncoder().encodeToString(body),
            "broker", message.getBrokerName(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "store_timestamp", message.getStoreTimestamp(),
            "born_timestamp", message.getBornTimestamp(),
            "born_host", address(message.getBornHost()),
            "store_host", address(message.getStoreHost()),
            "commit_log_offset", message.getCommitLogOffset(),
            "properties", message.getProperties(),
            "sys_flag", message.getSysFlag(),
            "flag", message.getFlag(),
            "body_crc", message.getBodyCRC(),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "store_size", message.getStoreSize());
    }

    /** What there is of a message that was not stored: a reply. */
    static Map<String, Object> reply(Message message) {
        return fields(
            "body", Base64.getEncoder().encodeToString(message.getBody()), "properties", message.getProperties());
    }

    private static String address(SocketAddress host) {
        InetSocketAddress inet = (InetSocketAddress) host;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    /** evenq.SendResult; the status as its code on the wire. */
    static Map<String, Object> receipt(SendResult result) {
        int status;
        switch (result.getSendStatus()) {
            case FLUSH_DISK_TIMEOUT:
                status = 10;
                break;
            case SLAVE_NOT_AVAILABLE:
                status = 11;
                break;
            case FLUSH_SLAVE_TIMEOUT:
                status = 12;
                break;
            default:
                status = 0;
        }
        return fields(
            "status", status,
            "queue", queue(result.getMessageQueue()),
            "offset", result.getQueueOffset(),
            "msg_id", result.getMsgId(),
            "offset_msg_id", result.getOffsetMsgId(),
            "transaction_id", result.getTransactionId());
    }

    /** evenq.MessageQueue. */
    static List<Object> queue(MessageQueue queue) {
        return List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId());
    }

    static List<Object> queues(Collection<MessageQueue> queues) {
        List<Object> values = new ArrayList<>();
        queues.stream().sorted().forEach(queue -> values.add(queue(queue)));
        return values;
    }

    static List<MessageQueue> readQueues(JSONObject arguments, String name) {
        List<MessageQueue> queues = new ArrayList<>();
        arguments.getJSONArray(name).forEach(item -> {
            List<?> parts = (List<?>) item;
            queues.add(new MessageQueue((String) parts.get(0), (String) parts.get(1), (Integer) parts.get(2)));
        });
        return queues;
    }

    static Map<String, MessageSelector> readSubscriptions(JSONObject settings) {
        Map<String, MessageSelector> selectors = new LinkedHashMap<>();
        settings.getJSONObject("subscriptions").forEach((topic, expression) -> selectors.put(topic,
            settings.getBooleanValue("sql")
                ? MessageSelector.bySql((String) expression) : MessageSelector.byTag((String) expression)));
        return selectors;
    }

    /** A message with its properties as they go on the wire, reserved names included. */
    static Message readMessage(JSONObject value) {
        Message message = new Message(value.getString("topic"), Base64.getDecoder().decode(value.getString("body")));
        message.setFlag(value.getIntValue("flag"));
        value.getJSONObject("properties")
            .forEach((name, text) -> MessageAccessor.putProperty(message, name, (String) text));
        return message;
    }
}
