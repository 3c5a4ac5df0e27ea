from evenq.client.read.pull import PullTemplates, pull_command
from evenq.model import MessageQueue
from evenq.protocol import Command

QUEUE = MessageQueue("orders", "broker-a", 0)


def test_a_pull_names_the_broker_of_its_queue() -> None:
    assert pull_command("g", QUEUE, 0, count=32).ext["bname"] == "broker-a"
    templates = PullTemplates("g", QUEUE)
    for template in (templates.at_once, templates.held):
        assert Command.decode(template.frames([(100, 32, 7)])).ext["bname"] == "broker-a"
