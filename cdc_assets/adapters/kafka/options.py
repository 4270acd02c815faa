from dataclasses import dataclass
from typing import Any
from cdc_assets.config.settings import KafkaSettings

@dataclass
class ProducerOptions:
    settings: Any
    name: str
    most_bytes: int = 0
    compression: tuple = ("", None)

    @classmethod
    def of(cls, settings: KafkaSettings, name: str):
        d = dict(settings.producer)
        return cls(settings, name, int(d.get("message.max.bytes", 0)), (d.get("compression.type", "").replace("none", ""), None))

    def of_client(self):
        return dict(bootstrap_servers=self.settings.servers.split(","), transactional_id=self.name, acks="all", request_timeout_ms=30000)
