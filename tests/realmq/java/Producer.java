package evenq;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer. Verbs: id, send (the messages given), flood (messages made here), request (one message, and its reply), stop.
 *
 * <p>Both sends take a mode: sync, async, oneway, batch (one request for all, or for {@code batch} at a time),
 * ordered (queue by the hash of {@code argument}).
 */
final class Producer implements Actor {
    private static final int IN_FLIGHT = 1000;
    private static final int ERRORS_TOLD = 5;

    private final DefaultMQProducer producer;

    Producer(JSONObject settings, Wire wire) throws Exception {
        producer = new DefaultMQProducer(settings.getString("group"));
        producer.setNamesrvAddr(settings.getString("namesrv"));
        producer.setInstanceName(settings.getString("instance"));
        producer.start();
    }

    @Override
    public Object act(String verb, JSONObject arguments) throws Exception {
        switch (verb) {
            case "id":
                return producer.buildMQClientId();
            case "send":
                return send(arguments);
            case "flood":
                return flood(arguments);
            case "request":
                return Wire.reply(producer.request(
                    Wire.readMessage(arguments.getJSONObject("message")), arguments.getLongValue("timeout")));
            case "stop":
                producer.shutdown();
                return null;
            default:
                throw Actor.unknown(verb);
        }
    }

    private List<Object> send(JSONObject arguments) throws Exception {
        JSONArray values = arguments.getJSONArray("messages");
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < values.size(); i++) {
            messages.add(Wire.readMessage(values.getJSONObject(i)));
        }
        Outcome outcome = new Outcome(true);
        deliver(messages, arguments, outcome);
        outcome.awaitAll();
        outcome.raise();
        List<Object> receipts = new ArrayList<>();
        outcome.results.forEach(result -> receipts.add(Wire.receipt(result)));
        return receipts;
    }

    /** Numbered messages of a given size, at a given rate or as fast as they go. */
    private Map<String, Object> flood(JSONObject arguments) throws Exception {
        int count = arguments.getIntValue("count");
        int step = "batch".equals(arguments.getString("mode")) ? arguments.getIntValue("batch", 100) : 1;
        double rate = arguments.getDoubleValue("rate");
        Outcome outcome = new Outcome(false);
        long begin = System.nanoTime();
        for (int next = 0; next < count; next += step) {
            if (rate > 0) {
                long wait = Math.round(next * 1000 / rate) - (System.nanoTime() - begin) / 1_000_000;
                Thread.sleep(Math.max(0, wait));
            }
            List<Message> messages = new ArrayList<>(step);
            for (int number = next; number < Math.min(count, next + step); number++) {
                messages.add(new Message(arguments.getString("topic"), numbered(number, arguments.getIntValue("size"))));
            }
            deliver(messages, arguments, outcome);
        }
        outcome.awaitAll();
        List<String> told = new ArrayList<>();
        outcome.errors.stream().limit(ERRORS_TOLD).forEach(error -> told.add(error.toString()));
        return Wire.fields(
            "seconds", (System.nanoTime() - begin) / 1e9,
            "failed", outcome.errors.size(),
            "errors", told);
    }

    private static byte[] numbered(int number, int size) {
        byte[] digits = Integer.toString(number).getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(digits, Math.max(size, digits.length));
        Arrays.fill(body, digits.length, body.length, (byte) ' ');
        return body;
    }

    /** Sends them; a failure goes into the outcome, as it does where it comes later. */
    private void deliver(List<Message> messages, JSONObject arguments, Outcome outcome) throws InterruptedException {
        String mode = arguments.getString("mode");
        for (Object unit : "batch".equals(mode) ? List.of(messages) : messages) {
            outcome.inFlight.acquire();
            try {
                dispatch(mode, unit, arguments, outcome);
            } catch (Exception error) {
                outcome.onException(error);
            }
        }
    }

    @SuppressWarnings("unchecked")
    private void dispatch(String mode, Object unit, JSONObject arguments, Outcome outcome) throws Exception {
        switch (mode) {
            case "sync":
                outcome.onSuccess(producer.send((Message) unit));
                break;
            case "async":
                producer.send((Message) unit, outcome);
                break;
            case "oneway":
                producer.sendOneway((Message) unit);
                outcome.inFlight.release();
                break;
            case "ordered":
                outcome.onSuccess(
                    producer.send((Message) unit, new SelectMessageQueueByHash(), arguments.getString("argument")));
                break;
            case "batch":
                outcome.onSuccess(producer.send((List<Message>) unit));
                break;
            default:
                throw new IllegalArgumentException("no mode " + mode);
        }
    }

    /** What became of the messages of one command. */
    private static final class Outcome implements SendCallback {
        final List<SendResult> results = Collections.synchronizedList(new ArrayList<>());
        final ConcurrentLinkedQueue<Throwable> errors = new ConcurrentLinkedQueue<>();
        final Semaphore inFlight = new Semaphore(IN_FLIGHT);
        private final boolean keep;

        Outcome(boolean keep) {
            this.keep = keep;
        }

        @Override
        public void onSuccess(SendResult result) {
            if (keep) {
                results.add(result);
            }
            inFlight.release();
        }

        @Override
        public void onException(Throwable error) {
            errors.add(error);
            inFlight.release();
        }

        void awaitAll() throws InterruptedException {
            inFlight.acquire(IN_FLIGHT);
        }

        void raise() throws Exception {
            if (!errors.isEmpty()) {
                throw new Exception(errors.size() + " sends failed, the first with " + errors.peek(), errors.peek());
            }
        }
    }
}
