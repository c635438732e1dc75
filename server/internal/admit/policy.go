package admit

import (
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// class is what a call means to the dispatcher's work. It decides how early the call is shed under load.
type class int

const (
	// classHold keeps and settles leases: renewals and reports. Never shed for load, or tasks that are done would be done
	// again; only for the bytes of its own kind that are not answered yet.
	classHold class = iota
	// classFetch takes on more work. Shed after submits. The handler asks for admission itself, once the reports that a
	// fetch carries are settled.
	classFetch
	// classSubmit brings more work. Shed first.
	classSubmit
	// classRead only looks. Shed with submits.
	classRead
	// classSteer is what operators change. Bounded in number, but not shed for load: a hold is how an operator ends an
	// overload.
	classSteer
	// classProbe is health and reflection: cheap, never shed, and ended when the server drains, since nothing is lost with
	// them.
	classProbe

	classes = int(classProbe) + 1
)

// classNames are their names in metrics.
var classNames = [classes]string{"hold", "fetch", "submit", "read", "steer", "probe"}

// policies is the class of every method that may be called. A method that is not in it is refused, so that none is ever
// served unconsidered.
var policies = map[string]class{
	pb.DispatchService_FetchTask_FullMethodName:        classFetch,
	pb.DispatchService_Heartbeat_FullMethodName:        classHold,
	pb.DispatchService_RenewLease_FullMethodName:       classHold,
	pb.DispatchService_ReportTask_FullMethodName:       classHold,
	pb.DispatchService_SubmitDiscovered_FullMethodName: classSubmit,
	pb.DispatchService_Work_FullMethodName:             classHold,

	pb.TaskService_SubmitTasks_FullMethodName:  classSubmit,
	pb.TaskService_GetTask_FullMethodName:      classRead,
	pb.TaskService_ListTasks_FullMethodName:    classRead,
	pb.TaskService_CancelTasks_FullMethodName:  classSteer,
	pb.TaskService_RetryTasks_FullMethodName:   classSubmit, // as much work as a submit
	pb.TaskService_RevokeLeases_FullMethodName: classSteer,

	pb.SourceService_CreateSource_FullMethodName:     classSteer,
	pb.SourceService_GetSource_FullMethodName:        classRead,
	pb.SourceService_GetSourceHistory_FullMethodName: classRead,
	pb.SourceService_ListSources_FullMethodName:      classRead,
	pb.SourceService_UpdateSource_FullMethodName:     classSteer,
	pb.SourceService_ApplySources_FullMethodName:     classSubmit, // an import, not a switch
	pb.SourceService_DeleteSources_FullMethodName:    classSteer,
	pb.SourceService_TriggerSources_FullMethodName:   classSteer,

	pb.QueueService_GetQueue_FullMethodName:        classRead,
	pb.QueueService_ListQueues_FullMethodName:      classRead,
	pb.QueueService_SetQueueRule_FullMethodName:    classSteer,
	pb.QueueService_ListQueueRules_FullMethodName:  classRead,
	pb.QueueService_DeleteQueueRule_FullMethodName: classSteer,

	pb.HoldService_SetHolds_FullMethodName:  classSteer,
	pb.HoldService_LiftHolds_FullMethodName: classSteer,
	pb.HoldService_ListHolds_FullMethodName: classRead,

	pb.AdminService_GetStats_FullMethodName:         classRead,
	pb.AdminService_ListLeases_FullMethodName:       classRead,
	pb.AdminService_ListCollectors_FullMethodName:   classRead,
	pb.AdminService_Explain_FullMethodName:          classRead,
	pb.AdminService_ListPools_FullMethodName:        classRead,
	pb.AdminService_ListFindings_FullMethodName:     classRead,
	pb.AdminService_ListAuditEntries_FullMethodName: classRead,
	pb.AdminService_ReleaseCollector_FullMethodName: classSteer,
	pb.AdminService_ExplainAccess_FullMethodName:    classRead,
	pb.AdminService_MoveOwner_FullMethodName:        classSteer,

	grpc_health_v1.Health_Check_FullMethodName: classProbe,
	grpc_health_v1.Health_List_FullMethodName:  classProbe,
	grpc_health_v1.Health_Watch_FullMethodName: classProbe,

	grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName:      classProbe,
	grpc_reflection_v1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: classProbe,
}
