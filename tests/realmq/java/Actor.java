package evenq;

import com.alibaba.fastjson2.JSONObject;

/** A RocketMQ client that the driver plays: made from its settings, then told what to do, verb by verb. */
interface Actor {
    /** Does {@code verb}; what it gives goes back as JSON. "stop" is known by every actor and is graceful. */
    Object act(String verb, JSONObject arguments) throws Exception;

    static IllegalArgumentException unknown(String verb) {
        return new IllegalArgumentException("this actor knows no verb " + verb);
    }
}
