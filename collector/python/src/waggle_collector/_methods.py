# Generated from the .proto files by generate.py. Do not edit.
"""The calls of all services as methods."""

from typing import TypeVar

from google.protobuf.message import Message

from waggle_collector import v1

Reply = TypeVar("Reply", bound=Message)


class Methods:
    """The unary calls of all services, each with its request and its reply."""

    def _call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        raise NotImplementedError

    def Explain(self, request: v1.ExplainRequest, timeout: float = 30) -> v1.ExplainResponse:
        """Explain returns why a task, a source, a queue or a pool is not handed out: every gate that holds it, and what
        opens the gate. It costs a few reads. Changes nothing."""
        return self._call("/waggle.v1.AdminService/Explain", request, v1.ExplainResponse, timeout)

    def ExplainAccess(self, request: v1.ExplainAccessRequest, timeout: float = 30) -> v1.ExplainAccessResponse:
        """ExplainAccess returns whether an identity may call a method, and which rule decides. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ExplainAccess", request, v1.ExplainAccessResponse, timeout)

    def GetStats(self, request: v1.GetStatsRequest, timeout: float = 30) -> v1.GetStatsResponse:
        """GetStats returns counts. Its cost depends on the number of shards, and of leases up to 20,000 a shard. Changes
        nothing."""
        return self._call("/waggle.v1.AdminService/GetStats", request, v1.GetStatsResponse, timeout)

    def ListAuditEntries(self, request: v1.ListAuditEntriesRequest, timeout: float = 30) -> v1.ListAuditEntriesResponse:
        """ListAuditEntries lists the changes that operators made, newest first. The store keeps the newest 10,000. Calls
        that changed nothing are in the log of the dispatcher only. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ListAuditEntries", request, v1.ListAuditEntriesResponse, timeout)

    def ListCollectors(self, request: v1.ListCollectorsRequest, timeout: float = 30) -> v1.ListCollectorsResponse:
        """ListCollectors lists the known collectors, by id. A collector that has been GONE for more than 24 h is
        forgotten; one that was granted nothing, 5 minutes after its last call. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ListCollectors", request, v1.ListCollectorsResponse, timeout)

    def ListFindings(self, request: v1.ListFindingsRequest, timeout: float = 30) -> v1.ListFindingsResponse:
        """ListFindings returns what stands still or is broken, the most severe first. It looks for about 1.5 s at most:
        of very many sources it looks at the first ones, and reports how many. A caller with grants for some sources
        only gets the findings of these sources and of their leases. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ListFindings", request, v1.ListFindingsResponse, timeout)

    def ListLeases(self, request: v1.ListLeasesRequest, timeout: float = 30) -> v1.ListLeasesResponse:
        """ListLeases lists the existing leases, with the holder and the age of each. The leases of one source and queue
        come roughly by deadline; no other order is promised. A page is not a snapshot: a lease that is renewed
        between two pages may be on both. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ListLeases", request, v1.ListLeasesResponse, timeout)

    def ListPools(self, request: v1.ListPoolsRequest, timeout: float = 30) -> v1.ListPoolsResponse:
        """ListPools lists by name the pools that have queues with waiting tasks. The shards are counted one after the
        other, so this is no snapshot. Changes nothing."""
        return self._call("/waggle.v1.AdminService/ListPools", request, v1.ListPoolsResponse, timeout)

    def MoveOwner(self, request: v1.MoveOwnerRequest, timeout: float = 30) -> v1.MoveOwnerResponse:
        """MoveOwner gives the store from its owner to the standby, as before the owner is stopped. It answers once that
        has begun; GetStats shows who owns the store. Calls wait meanwhile, some 200 ms. Repeated with the same
        `owner`, it changes nothing more."""
        return self._call("/waggle.v1.AdminService/MoveOwner", request, v1.MoveOwnerResponse, timeout)

    def ReleaseCollector(self, request: v1.ReleaseCollectorRequest, timeout: float = 30) -> v1.ReleaseCollectorResponse:
        """ReleaseCollector ends the binding of a collector_id, so that the next identity that uses it owns it. Leases of
        the collector continue. Repeated: the answer has no identity, unless somebody has used the id meanwhile."""
        return self._call("/waggle.v1.AdminService/ReleaseCollector", request, v1.ReleaseCollectorResponse, timeout)

    def FetchTask(self, request: v1.FetchTaskRequest, timeout: float = 30) -> v1.FetchTaskResponse:
        """FetchTask hands out tasks, each under a lease. It is a long poll: if there is nothing to hand out, it waits up
        to `wait`. It always answers before the caller's deadline. Its reports are settled before it waits, even if
        the fetch then fails."""
        return self._call("/waggle.v1.DispatchService/FetchTask", request, v1.FetchTaskResponse, timeout)

    def RenewLease(self, request: v1.RenewLeaseRequest, timeout: float = 30) -> v1.RenewLeaseResponse:
        """RenewLease is one exchange of Heartbeat as a plain call, for collectors without streams. Idempotent."""
        return self._call("/waggle.v1.DispatchService/RenewLease", request, v1.RenewLeaseResponse, timeout)

    def ReportTask(self, request: v1.ReportTaskRequest, timeout: float = 30) -> v1.ReportTaskResponse:
        """ReportTask reports how work on tasks ended. Results come in the order of the reports; a stale or refused
        report has its own code and never fails the others. A repeated report gets ALREADY_REPORTED with the effect of
        the first one, but without the results of `discovered`. After the end of a later lease, the answer is
        ALREADY_REPORTED while the task's history shows the attempt, LEASE_LOST after that. The history shows the last
        10 attempts, without releases. A one-shot task that succeeded loses that attempt when it becomes due again."""
        return self._call("/waggle.v1.DispatchService/ReportTask", request, v1.ReportTaskResponse, timeout)

    def SubmitDiscovered(self, request: v1.SubmitDiscoveredRequest, timeout: float = 30) -> v1.SubmitDiscoveredResponse:
        """SubmitDiscovered submits discovered items while their task is still leased, for pages with more items than a
        report may carry. The rules are those of `discovered` in a report. Repeated items get EXISTS."""
        return self._call("/waggle.v1.DispatchService/SubmitDiscovered", request, v1.SubmitDiscoveredResponse, timeout)

    def LiftHolds(self, request: v1.LiftHoldsRequest, timeout: float = 30) -> v1.LiftHoldsResponse:
        """LiftHolds lifts the hold of a name from each target; waiting fetches are served at once. Lifting a hold that
        does not exist changes nothing. The name "waggle" opens blocks that Waggle made itself on queues, and resets
        their step. After an error some may be lifted: repeat the call."""
        return self._call("/waggle.v1.HoldService/LiftHolds", request, v1.LiftHoldsResponse, timeout)

    def ListHolds(self, request: v1.ListHoldsRequest, timeout: float = 30) -> v1.ListHoldsResponse:
        """ListHolds lists every hold: no operator has stopped anything else. Holds that are not on sources come first,
        by target, then those on sources, by id. With `blocks`, the blocks that Waggle made itself follow, by queue. A
        page is not a snapshot. Changes nothing."""
        return self._call("/waggle.v1.HoldService/ListHolds", request, v1.ListHoldsResponse, timeout)

    def SetHolds(self, request: v1.SetHoldsRequest, timeout: float = 30) -> v1.SetHoldsResponse:
        """SetHolds sets a hold on each target. When it returns, every dispatcher obeys the hold. Setting an equal hold
        again changes nothing. A hold that exists and differs is replaced only with `replace` or its `etag`. Otherwise
        the whole call is refused, so that a short maintenance never replaces a permanent stop by accident. After an
        error some of the holds may be set: repeat the call, which is harmless."""
        return self._call("/waggle.v1.HoldService/SetHolds", request, v1.SetHoldsResponse, timeout)

    def DeleteQueueRule(self, request: v1.DeleteQueueRuleRequest, timeout: float = 30) -> v1.DeleteQueueRuleResponse:
        """DeleteQueueRule removes the rule of a pattern. The next shorter pattern then applies to what it matched."""
        return self._call("/waggle.v1.QueueService/DeleteQueueRule", request, v1.DeleteQueueRuleResponse, timeout)

    def GetQueue(self, request: v1.GetQueueRequest, timeout: float = 30) -> v1.GetQueueResponse:
        """GetQueue returns a queue with its settings and gates. A queue that does not exist is returned as it would be
        created: with its rule, and the queue that its host is mapped to. Changes nothing."""
        return self._call("/waggle.v1.QueueService/GetQueue", request, v1.GetQueueResponse, timeout)

    def ListQueueRules(self, request: v1.ListQueueRulesRequest, timeout: float = 30) -> v1.ListQueueRulesResponse:
        """ListQueueRules lists the rules by pattern. Changes nothing."""
        return self._call("/waggle.v1.QueueService/ListQueueRules", request, v1.ListQueueRulesResponse, timeout)

    def ListQueues(self, request: v1.ListQueuesRequest, timeout: float = 30) -> v1.ListQueuesResponse:
        """ListQueues lists the queues that hold tasks or have a gate of their own. A page is not a snapshot. Changes
        nothing."""
        return self._call("/waggle.v1.QueueService/ListQueues", request, v1.ListQueuesResponse, timeout)

    def SetQueueRule(self, request: v1.SetQueueRuleRequest, timeout: float = 30) -> v1.SetQueueRuleResponse:
        """SetQueueRule creates the rule of a pattern, replaces it, or changes only the settings in update_mask. Every
        dispatcher applies it to new grants within 1 s. An equal rule changes nothing. With an etag it changes nothing
        if any rule was changed since the etag was read."""
        return self._call("/waggle.v1.QueueService/SetQueueRule", request, v1.SetQueueRuleResponse, timeout)

    def ApplySources(self, request: v1.ApplySourcesRequest, timeout: float = 30) -> v1.ApplySourcesResponse:
        """ApplySources creates or updates sources so that they match the specs. It changes specs only: holds stay, and
        sources that the call does not name stay. An invalid item does not fail the others. Idempotent: a source that
        already matches gets UNCHANGED. An error is for the whole call: some items may have been applied; repeat all."""
        return self._call("/waggle.v1.SourceService/ApplySources", request, v1.ApplySourcesResponse, timeout)

    def CreateSource(self, request: v1.CreateSourceRequest, timeout: float = 30) -> v1.CreateSourceResponse:
        """CreateSource registers a source. Its seeds are in the store when the call returns. A repeat after a lost reply
        gets SOURCE_EXISTS."""
        return self._call("/waggle.v1.SourceService/CreateSource", request, v1.CreateSourceResponse, timeout)

    def DeleteSources(self, request: v1.DeleteSourcesRequest, timeout: float = 30) -> v1.DeleteSourcesResponse:
        """DeleteSources ends sources: their tasks end CANCELED, and holders of leases get SOURCE_DELETED by heartbeat.
        The id may be created again, with a new uid. The new source knows none of the old keys, unless it has a shared
        scope. Idempotent."""
        return self._call("/waggle.v1.SourceService/DeleteSources", request, v1.DeleteSourcesResponse, timeout)

    def GetSource(self, request: v1.GetSourceRequest, timeout: float = 30) -> v1.GetSourceResponse:
        """GetSource returns a source with its status. Changes nothing."""
        return self._call("/waggle.v1.SourceService/GetSource", request, v1.GetSourceResponse, timeout)

    def GetSourceHistory(self, request: v1.GetSourceHistoryRequest, timeout: float = 30) -> v1.GetSourceHistoryResponse:
        """GetSourceHistory returns what is remembered of the crawls of a source. Changes nothing."""
        return self._call("/waggle.v1.SourceService/GetSourceHistory", request, v1.GetSourceHistoryResponse, timeout)

    def ListSources(self, request: v1.ListSourcesRequest, timeout: float = 30) -> v1.ListSourcesResponse:
        """ListSources lists sources by id. Changes nothing."""
        return self._call("/waggle.v1.SourceService/ListSources", request, v1.ListSourcesResponse, timeout)

    def TriggerSources(self, request: v1.TriggerSourcesRequest, timeout: float = 30) -> v1.TriggerSourcesResponse:
        """TriggerSources makes the sources' seeds due now, except canceled ones. A leased seed is due once more after it
        settles, even if it was triggered several times."""
        return self._call("/waggle.v1.SourceService/TriggerSources", request, v1.TriggerSourcesResponse, timeout)

    def UpdateSource(self, request: v1.UpdateSourceRequest, timeout: float = 30) -> v1.UpdateSourceResponse:
        """UpdateSource changes fields of a spec. It returns when every shard has the change; existing leases continue.
        New seeds are scheduled, removed seeds are canceled. Idempotent: without a change the version stays."""
        return self._call("/waggle.v1.SourceService/UpdateSource", request, v1.UpdateSourceResponse, timeout)

    def CancelTasks(self, request: v1.CancelTasksRequest, timeout: float = 30) -> v1.CancelTasksResponse:
        """CancelTasks cancels tasks. One that waits is CANCELED at once. The holder of one that is leased gets
        TASK_CANCELED by heartbeat; however the lease ends, the task ends CANCELED. A canceled seed stays CANCELED
        until RetryTasks, or until it is removed from its source and added again; triggers do not bring it back. Any
        other task also comes back by a later pass and by a submit with AGAIN. Each id has its own result and does not
        fail the others. Repeated: ALREADY_REQUESTED or ALREADY_SETTLED, and nothing changes."""
        return self._call("/waggle.v1.TaskService/CancelTasks", request, v1.CancelTasksResponse, timeout)

    def GetTask(self, request: v1.GetTaskRequest, timeout: float = 30) -> v1.GetTaskResponse:
        """GetTask returns a task with its holder, payload and history. Changes nothing."""
        return self._call("/waggle.v1.TaskService/GetTask", request, v1.GetTaskResponse, timeout)

    def ListTasks(self, request: v1.ListTasksRequest, timeout: float = 30) -> v1.ListTasksResponse:
        """ListTasks lists tasks of a source or a queue, without payload, cursor, memo and history. A page is not a
        snapshot: a task that changes its state meanwhile can appear twice or not at all. Changes nothing."""
        return self._call("/waggle.v1.TaskService/ListTasks", request, v1.ListTasksResponse, timeout)

    def RetryTasks(self, request: v1.RetryTasksRequest, timeout: float = 30) -> v1.RetryTasksResponse:
        """RetryTasks makes tasks that are DEAD, CANCELED or DONE due now. They keep their memo, metadata and payload; a
        DONE one-shot task has lost metadata and payload, and may have lost URL and key: then it is REFUSED, and a
        submit with AGAIN brings it back. All budgets start at 0, also the given-up cycles of seeds. Tasks that wait
        or are leased stay as they are. Each id has its own result and does not fail the others. Repeated: NOT_SETTLED
        while the task has not settled again."""
        return self._call("/waggle.v1.TaskService/RetryTasks", request, v1.RetryTasksResponse, timeout)

    def RevokeLeases(self, request: v1.RevokeLeasesRequest, timeout: float = 30) -> v1.RevokeLeasesResponse:
        """RevokeLeases ends the leases of tasks. The tasks are due again at once, with no attempt spent; a task with a
        requested cancel is CANCELED. The old holder's next renewal gets REVOKED and its report LEASE_LOST. Until its
        next heartbeat it continues to work, perhaps at the same time as the next holder: to end the work too, cancel
        the task. Each id has its own result and does not fail the others. Repeated: NOT_LEASED. If the task was
        handed out again, the new lease ends, or with fences the result is OTHER_LEASE."""
        return self._call("/waggle.v1.TaskService/RevokeLeases", request, v1.RevokeLeasesResponse, timeout)

    def SubmitTasks(self, request: v1.SubmitTasksRequest, timeout: float = 30) -> v1.SubmitTasksResponse:
        """SubmitTasks adds tasks to sources. Each item has its own result and does not fail the others. An item that is
        submitted twice is the same task and gets EXISTS, so the call may be repeated."""
        return self._call("/waggle.v1.TaskService/SubmitTasks", request, v1.SubmitTasksResponse, timeout)


class AsyncMethods:
    """The unary calls of all services, each with its request and its reply."""

    async def _call(self, method: str, request: Message, reply: type[Reply], timeout: float) -> Reply:
        raise NotImplementedError

    async def Explain(self, request: v1.ExplainRequest, timeout: float = 30) -> v1.ExplainResponse:
        """Explain returns why a task, a source, a queue or a pool is not handed out: every gate that holds it, and what
        opens the gate. It costs a few reads. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/Explain", request, v1.ExplainResponse, timeout)

    async def ExplainAccess(self, request: v1.ExplainAccessRequest, timeout: float = 30) -> v1.ExplainAccessResponse:
        """ExplainAccess returns whether an identity may call a method, and which rule decides. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ExplainAccess", request, v1.ExplainAccessResponse, timeout)

    async def GetStats(self, request: v1.GetStatsRequest, timeout: float = 30) -> v1.GetStatsResponse:
        """GetStats returns counts. Its cost depends on the number of shards, and of leases up to 20,000 a shard. Changes
        nothing."""
        return await self._call("/waggle.v1.AdminService/GetStats", request, v1.GetStatsResponse, timeout)

    async def ListAuditEntries(self, request: v1.ListAuditEntriesRequest, timeout: float = 30) -> v1.ListAuditEntriesResponse:
        """ListAuditEntries lists the changes that operators made, newest first. The store keeps the newest 10,000. Calls
        that changed nothing are in the log of the dispatcher only. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ListAuditEntries", request, v1.ListAuditEntriesResponse, timeout)

    async def ListCollectors(self, request: v1.ListCollectorsRequest, timeout: float = 30) -> v1.ListCollectorsResponse:
        """ListCollectors lists the known collectors, by id. A collector that has been GONE for more than 24 h is
        forgotten; one that was granted nothing, 5 minutes after its last call. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ListCollectors", request, v1.ListCollectorsResponse, timeout)

    async def ListFindings(self, request: v1.ListFindingsRequest, timeout: float = 30) -> v1.ListFindingsResponse:
        """ListFindings returns what stands still or is broken, the most severe first. It looks for about 1.5 s at most:
        of very many sources it looks at the first ones, and reports how many. A caller with grants for some sources
        only gets the findings of these sources and of their leases. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ListFindings", request, v1.ListFindingsResponse, timeout)

    async def ListLeases(self, request: v1.ListLeasesRequest, timeout: float = 30) -> v1.ListLeasesResponse:
        """ListLeases lists the existing leases, with the holder and the age of each. The leases of one source and queue
        come roughly by deadline; no other order is promised. A page is not a snapshot: a lease that is renewed
        between two pages may be on both. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ListLeases", request, v1.ListLeasesResponse, timeout)

    async def ListPools(self, request: v1.ListPoolsRequest, timeout: float = 30) -> v1.ListPoolsResponse:
        """ListPools lists by name the pools that have queues with waiting tasks. The shards are counted one after the
        other, so this is no snapshot. Changes nothing."""
        return await self._call("/waggle.v1.AdminService/ListPools", request, v1.ListPoolsResponse, timeout)

    async def MoveOwner(self, request: v1.MoveOwnerRequest, timeout: float = 30) -> v1.MoveOwnerResponse:
        """MoveOwner gives the store from its owner to the standby, as before the owner is stopped. It answers once that
        has begun; GetStats shows who owns the store. Calls wait meanwhile, some 200 ms. Repeated with the same
        `owner`, it changes nothing more."""
        return await self._call("/waggle.v1.AdminService/MoveOwner", request, v1.MoveOwnerResponse, timeout)

    async def ReleaseCollector(self, request: v1.ReleaseCollectorRequest, timeout: float = 30) -> v1.ReleaseCollectorResponse:
        """ReleaseCollector ends the binding of a collector_id, so that the next identity that uses it owns it. Leases of
        the collector continue. Repeated: the answer has no identity, unless somebody has used the id meanwhile."""
        return await self._call("/waggle.v1.AdminService/ReleaseCollector", request, v1.ReleaseCollectorResponse, timeout)

    async def FetchTask(self, request: v1.FetchTaskRequest, timeout: float = 30) -> v1.FetchTaskResponse:
        """FetchTask hands out tasks, each under a lease. It is a long poll: if there is nothing to hand out, it waits up
        to `wait`. It always answers before the caller's deadline. Its reports are settled before it waits, even if
        the fetch then fails."""
        return await self._call("/waggle.v1.DispatchService/FetchTask", request, v1.FetchTaskResponse, timeout)

    async def RenewLease(self, request: v1.RenewLeaseRequest, timeout: float = 30) -> v1.RenewLeaseResponse:
        """RenewLease is one exchange of Heartbeat as a plain call, for collectors without streams. Idempotent."""
        return await self._call("/waggle.v1.DispatchService/RenewLease", request, v1.RenewLeaseResponse, timeout)

    async def ReportTask(self, request: v1.ReportTaskRequest, timeout: float = 30) -> v1.ReportTaskResponse:
        """ReportTask reports how work on tasks ended. Results come in the order of the reports; a stale or refused
        report has its own code and never fails the others. A repeated report gets ALREADY_REPORTED with the effect of
        the first one, but without the results of `discovered`. After the end of a later lease, the answer is
        ALREADY_REPORTED while the task's history shows the attempt, LEASE_LOST after that. The history shows the last
        10 attempts, without releases. A one-shot task that succeeded loses that attempt when it becomes due again."""
        return await self._call("/waggle.v1.DispatchService/ReportTask", request, v1.ReportTaskResponse, timeout)

    async def SubmitDiscovered(self, request: v1.SubmitDiscoveredRequest, timeout: float = 30) -> v1.SubmitDiscoveredResponse:
        """SubmitDiscovered submits discovered items while their task is still leased, for pages with more items than a
        report may carry. The rules are those of `discovered` in a report. Repeated items get EXISTS."""
        return await self._call("/waggle.v1.DispatchService/SubmitDiscovered", request, v1.SubmitDiscoveredResponse, timeout)

    async def LiftHolds(self, request: v1.LiftHoldsRequest, timeout: float = 30) -> v1.LiftHoldsResponse:
        """LiftHolds lifts the hold of a name from each target; waiting fetches are served at once. Lifting a hold that
        does not exist changes nothing. The name "waggle" opens blocks that Waggle made itself on queues, and resets
        their step. After an error some may be lifted: repeat the call."""
        return await self._call("/waggle.v1.HoldService/LiftHolds", request, v1.LiftHoldsResponse, timeout)

    async def ListHolds(self, request: v1.ListHoldsRequest, timeout: float = 30) -> v1.ListHoldsResponse:
        """ListHolds lists every hold: no operator has stopped anything else. Holds that are not on sources come first,
        by target, then those on sources, by id. With `blocks`, the blocks that Waggle made itself follow, by queue. A
        page is not a snapshot. Changes nothing."""
        return await self._call("/waggle.v1.HoldService/ListHolds", request, v1.ListHoldsResponse, timeout)

    async def SetHolds(self, request: v1.SetHoldsRequest, timeout: float = 30) -> v1.SetHoldsResponse:
        """SetHolds sets a hold on each target. When it returns, every dispatcher obeys the hold. Setting an equal hold
        again changes nothing. A hold that exists and differs is replaced only with `replace` or its `etag`. Otherwise
        the whole call is refused, so that a short maintenance never replaces a permanent stop by accident. After an
        error some of the holds may be set: repeat the call, which is harmless."""
        return await self._call("/waggle.v1.HoldService/SetHolds", request, v1.SetHoldsResponse, timeout)

    async def DeleteQueueRule(self, request: v1.DeleteQueueRuleRequest, timeout: float = 30) -> v1.DeleteQueueRuleResponse:
        """DeleteQueueRule removes the rule of a pattern. The next shorter pattern then applies to what it matched."""
        return await self._call("/waggle.v1.QueueService/DeleteQueueRule", request, v1.DeleteQueueRuleResponse, timeout)

    async def GetQueue(self, request: v1.GetQueueRequest, timeout: float = 30) -> v1.GetQueueResponse:
        """GetQueue returns a queue with its settings and gates. A queue that does not exist is returned as it would be
        created: with its rule, and the queue that its host is mapped to. Changes nothing."""
        return await self._call("/waggle.v1.QueueService/GetQueue", request, v1.GetQueueResponse, timeout)

    async def ListQueueRules(self, request: v1.ListQueueRulesRequest, timeout: float = 30) -> v1.ListQueueRulesResponse:
        """ListQueueRules lists the rules by pattern. Changes nothing."""
        return await self._call("/waggle.v1.QueueService/ListQueueRules", request, v1.ListQueueRulesResponse, timeout)

    async def ListQueues(self, request: v1.ListQueuesRequest, timeout: float = 30) -> v1.ListQueuesResponse:
        """ListQueues lists the queues that hold tasks or have a gate of their own. A page is not a snapshot. Changes
        nothing."""
        return await self._call("/waggle.v1.QueueService/ListQueues", request, v1.ListQueuesResponse, timeout)

    async def SetQueueRule(self, request: v1.SetQueueRuleRequest, timeout: float = 30) -> v1.SetQueueRuleResponse:
        """SetQueueRule creates the rule of a pattern, replaces it, or changes only the settings in update_mask. Every
        dispatcher applies it to new grants within 1 s. An equal rule changes nothing. With an etag it changes nothing
        if any rule was changed since the etag was read."""
        return await self._call("/waggle.v1.QueueService/SetQueueRule", request, v1.SetQueueRuleResponse, timeout)

    async def ApplySources(self, request: v1.ApplySourcesRequest, timeout: float = 30) -> v1.ApplySourcesResponse:
        """ApplySources creates or updates sources so that they match the specs. It changes specs only: holds stay, and
        sources that the call does not name stay. An invalid item does not fail the others. Idempotent: a source that
        already matches gets UNCHANGED. An error is for the whole call: some items may have been applied; repeat all."""
        return await self._call("/waggle.v1.SourceService/ApplySources", request, v1.ApplySourcesResponse, timeout)

    async def CreateSource(self, request: v1.CreateSourceRequest, timeout: float = 30) -> v1.CreateSourceResponse:
        """CreateSource registers a source. Its seeds are in the store when the call returns. A repeat after a lost reply
        gets SOURCE_EXISTS."""
        return await self._call("/waggle.v1.SourceService/CreateSource", request, v1.CreateSourceResponse, timeout)

    async def DeleteSources(self, request: v1.DeleteSourcesRequest, timeout: float = 30) -> v1.DeleteSourcesResponse:
        """DeleteSources ends sources: their tasks end CANCELED, and holders of leases get SOURCE_DELETED by heartbeat.
        The id may be created again, with a new uid. The new source knows none of the old keys, unless it has a shared
        scope. Idempotent."""
        return await self._call("/waggle.v1.SourceService/DeleteSources", request, v1.DeleteSourcesResponse, timeout)

    async def GetSource(self, request: v1.GetSourceRequest, timeout: float = 30) -> v1.GetSourceResponse:
        """GetSource returns a source with its status. Changes nothing."""
        return await self._call("/waggle.v1.SourceService/GetSource", request, v1.GetSourceResponse, timeout)

    async def GetSourceHistory(self, request: v1.GetSourceHistoryRequest, timeout: float = 30) -> v1.GetSourceHistoryResponse:
        """GetSourceHistory returns what is remembered of the crawls of a source. Changes nothing."""
        return await self._call("/waggle.v1.SourceService/GetSourceHistory", request, v1.GetSourceHistoryResponse, timeout)

    async def ListSources(self, request: v1.ListSourcesRequest, timeout: float = 30) -> v1.ListSourcesResponse:
        """ListSources lists sources by id. Changes nothing."""
        return await self._call("/waggle.v1.SourceService/ListSources", request, v1.ListSourcesResponse, timeout)

    async def TriggerSources(self, request: v1.TriggerSourcesRequest, timeout: float = 30) -> v1.TriggerSourcesResponse:
        """TriggerSources makes the sources' seeds due now, except canceled ones. A leased seed is due once more after it
        settles, even if it was triggered several times."""
        return await self._call("/waggle.v1.SourceService/TriggerSources", request, v1.TriggerSourcesResponse, timeout)

    async def UpdateSource(self, request: v1.UpdateSourceRequest, timeout: float = 30) -> v1.UpdateSourceResponse:
        """UpdateSource changes fields of a spec. It returns when every shard has the change; existing leases continue.
        New seeds are scheduled, removed seeds are canceled. Idempotent: without a change the version stays."""
        return await self._call("/waggle.v1.SourceService/UpdateSource", request, v1.UpdateSourceResponse, timeout)

    async def CancelTasks(self, request: v1.CancelTasksRequest, timeout: float = 30) -> v1.CancelTasksResponse:
        """CancelTasks cancels tasks. One that waits is CANCELED at once. The holder of one that is leased gets
        TASK_CANCELED by heartbeat; however the lease ends, the task ends CANCELED. A canceled seed stays CANCELED
        until RetryTasks, or until it is removed from its source and added again; triggers do not bring it back. Any
        other task also comes back by a later pass and by a submit with AGAIN. Each id has its own result and does not
        fail the others. Repeated: ALREADY_REQUESTED or ALREADY_SETTLED, and nothing changes."""
        return await self._call("/waggle.v1.TaskService/CancelTasks", request, v1.CancelTasksResponse, timeout)

    async def GetTask(self, request: v1.GetTaskRequest, timeout: float = 30) -> v1.GetTaskResponse:
        """GetTask returns a task with its holder, payload and history. Changes nothing."""
        return await self._call("/waggle.v1.TaskService/GetTask", request, v1.GetTaskResponse, timeout)

    async def ListTasks(self, request: v1.ListTasksRequest, timeout: float = 30) -> v1.ListTasksResponse:
        """ListTasks lists tasks of a source or a queue, without payload, cursor, memo and history. A page is not a
        snapshot: a task that changes its state meanwhile can appear twice or not at all. Changes nothing."""
        return await self._call("/waggle.v1.TaskService/ListTasks", request, v1.ListTasksResponse, timeout)

    async def RetryTasks(self, request: v1.RetryTasksRequest, timeout: float = 30) -> v1.RetryTasksResponse:
        """RetryTasks makes tasks that are DEAD, CANCELED or DONE due now. They keep their memo, metadata and payload; a
        DONE one-shot task has lost metadata and payload, and may have lost URL and key: then it is REFUSED, and a
        submit with AGAIN brings it back. All budgets start at 0, also the given-up cycles of seeds. Tasks that wait
        or are leased stay as they are. Each id has its own result and does not fail the others. Repeated: NOT_SETTLED
        while the task has not settled again."""
        return await self._call("/waggle.v1.TaskService/RetryTasks", request, v1.RetryTasksResponse, timeout)

    async def RevokeLeases(self, request: v1.RevokeLeasesRequest, timeout: float = 30) -> v1.RevokeLeasesResponse:
        """RevokeLeases ends the leases of tasks. The tasks are due again at once, with no attempt spent; a task with a
        requested cancel is CANCELED. The old holder's next renewal gets REVOKED and its report LEASE_LOST. Until its
        next heartbeat it continues to work, perhaps at the same time as the next holder: to end the work too, cancel
        the task. Each id has its own result and does not fail the others. Repeated: NOT_LEASED. If the task was
        handed out again, the new lease ends, or with fences the result is OTHER_LEASE."""
        return await self._call("/waggle.v1.TaskService/RevokeLeases", request, v1.RevokeLeasesResponse, timeout)

    async def SubmitTasks(self, request: v1.SubmitTasksRequest, timeout: float = 30) -> v1.SubmitTasksResponse:
        """SubmitTasks adds tasks to sources. Each item has its own result and does not fail the others. An item that is
        submitted twice is the same task and gets EXISTS, so the call may be repeated."""
        return await self._call("/waggle.v1.TaskService/SubmitTasks", request, v1.SubmitTasksResponse, timeout)
