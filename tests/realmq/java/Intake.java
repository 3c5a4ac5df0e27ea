package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.MessageExt;

/** What a consumer has got: reported message by message, or, for measurements, only counted. */
final class Intake {
    private final String actor;
    private final Wire wire;
    private final boolean countOnly;
    private final AtomicLong count = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private volatile long last;

    Intake(JSONObject settings, Wire wire) {
        this.actor = settings.getString("actor");
        this.wire = wire;
        this.countOnly = settings.getBooleanValue("count_only");
    }

    void add(List<MessageExt> messages) {
        long size = 0;
        for (MessageExt message : messages) {
            size += message.getBody().length;
        }
        bytes.addAndGet(size);
        count.addAndGet(messages.size());
        last = System.currentTimeMillis();
        if (!countOnly) {
            wire.messages(actor, messages);
        }
    }

    /** How many came, the bytes of their bodies, and when the last one did. */
    Map<String, Object> total() {
        return Wire.fields("count", count.get(), "bytes", bytes.get(), "last", last / 1000.0);
    }
}
