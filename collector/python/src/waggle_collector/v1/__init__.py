# Generated from the .proto files by generate.py. Do not edit.
"""The messages and enums of the protocol, package waggle.v1."""

from waggle_collector.v1.admin_service_pb2 import *
from waggle_collector.v1.collector_pb2 import *
from waggle_collector.v1.dispatch_service_pb2 import *
from waggle_collector.v1.error_reason_pb2 import *
from waggle_collector.v1.filter_pb2 import *
from waggle_collector.v1.gate_pb2 import *
from waggle_collector.v1.hold_pb2 import *
from waggle_collector.v1.hold_service_pb2 import *
from waggle_collector.v1.queue_pb2 import *
from waggle_collector.v1.queue_service_pb2 import *
from waggle_collector.v1.rates_pb2 import *
from waggle_collector.v1.source_pb2 import *
from waggle_collector.v1.source_service_pb2 import *
from waggle_collector.v1.task_pb2 import *
from waggle_collector.v1.task_service_pb2 import *
