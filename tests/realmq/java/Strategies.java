package evenq;

import com.alibaba.fastjson2.JSONObject;
import java.util.HashSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Java's strategies by their names; what a strategy needs besides comes from the member's settings. */
final class Strategies {
    private Strategies() {
    }

    static AllocateMessageQueueStrategy make(String name, JSONObject settings) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(settings.getIntValue("virtual_nodes", 10));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(Wire.readQueues(settings, "queues"));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(settings.getList("rooms", String.class)));
                return room;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(make(settings.getString("inner"), settings), new Rooms(settings));
            default:
                throw new IllegalArgumentException("Java has no strategy " + name);
        }
    }

    /** Rooms by broker name and by a member's instance name, as given. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        private final JSONObject brokers;
        private final JSONObject members;

        Rooms(JSONObject settings) {
            brokers = settings.getJSONObject("broker_rooms");
            members = settings.getJSONObject("member_rooms");
        }

        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return brokers.getString(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return members.getString(clientId.substring(clientId.indexOf('@') + 1));
        }
    }
}
