package auth

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Role is what an identity may do.
type Role string

// The roles.
const (
	Collector Role = "collector" // fetches tasks, keeps and reports them
	Producer  Role = "producer"  // submits tasks, and looks at them and their sources
	Operator  Role = "operator"  // sees everything, and changes sources, tasks, holds and rules
	Viewer    Role = "viewer"    // sees everything
	Admin     Role = "admin"     // makes every call
)

// Roles are all roles.
func Roles() []Role { return []Role{Collector, Producer, Operator, Viewer, Admin} }

// scope is how a grant that is narrowed bounds a method.
type scope int

const (
	// ofAll: what the call shows or changes belongs to no source, such as queues and collectors, so that only a grant that is
	// not narrowed allows it.
	ofAll scope = iota
	// ofNone: what the call shows names no source, such as counts, or only sources of the grant ([Caller.Sources]).
	ofNone
	// ofSources: each source that the call names, and that its filter can match, is in the grant.
	ofSources
	// ofCollector: the collector id and the pools are in the grant.
	ofCollector
)

// rule is who may call a method.
type rule struct {
	anyone bool
	roles  []Role // an Admin may call every method
	scope  scope
}

// The rules that methods have.
var (
	collectorCalls = rule{roles: []Role{Collector}, scope: ofCollector}
	taskSubmits    = rule{roles: []Role{Producer, Operator}, scope: ofSources}
	sourceReads    = rule{roles: []Role{Producer, Operator, Viewer}, scope: ofSources}
	leaseReads     = rule{roles: []Role{Operator, Viewer}, scope: ofSources}
	sharedReads    = rule{roles: []Role{Producer, Operator, Viewer}, scope: ofAll}
	countReads     = rule{roles: []Role{Producer, Operator, Viewer}, scope: ofNone}
	findingReads   = rule{roles: []Role{Operator, Viewer}, scope: ofNone}
	sourceChanges  = rule{roles: []Role{Operator}, scope: ofSources}
	sharedChanges  = rule{roles: []Role{Operator}, scope: ofAll}
	adminReads     = rule{scope: ofAll}
	anyRole        = rule{roles: []Role{Collector, Producer, Operator, Viewer}, scope: ofNone}
	probes         = rule{anyone: true}
)

// rules are who may call each method. A method without a row is refused.
var rules = map[string]rule{
	pb.DispatchService_FetchTask_FullMethodName:        collectorCalls,
	pb.DispatchService_Heartbeat_FullMethodName:        collectorCalls,
	pb.DispatchService_RenewLease_FullMethodName:       collectorCalls,
	pb.DispatchService_ReportTask_FullMethodName:       collectorCalls,
	pb.DispatchService_SubmitDiscovered_FullMethodName: collectorCalls,
	pb.DispatchService_Work_FullMethodName:             collectorCalls,

	pb.TaskService_SubmitTasks_FullMethodName:  taskSubmits,
	pb.TaskService_GetTask_FullMethodName:      sourceReads,
	pb.TaskService_ListTasks_FullMethodName:    sourceReads,
	pb.TaskService_CancelTasks_FullMethodName:  sourceChanges,
	pb.TaskService_RetryTasks_FullMethodName:   sourceChanges,
	pb.TaskService_RevokeLeases_FullMethodName: sourceChanges,

	pb.SourceService_CreateSource_FullMethodName:     sourceChanges,
	pb.SourceService_GetSource_FullMethodName:        sourceReads,
	pb.SourceService_GetSourceHistory_FullMethodName: sourceReads,
	pb.SourceService_ListSources_FullMethodName:      sourceReads,
	pb.SourceService_UpdateSource_FullMethodName:     sourceChanges,
	pb.SourceService_ApplySources_FullMethodName:     sourceChanges,
	pb.SourceService_DeleteSources_FullMethodName:    sourceChanges,
	pb.SourceService_TriggerSources_FullMethodName:   sourceChanges,

	pb.QueueService_GetQueue_FullMethodName:        sharedReads,
	pb.QueueService_ListQueues_FullMethodName:      sharedReads,
	pb.QueueService_SetQueueRule_FullMethodName:    sharedChanges,
	pb.QueueService_ListQueueRules_FullMethodName:  sharedReads,
	pb.QueueService_DeleteQueueRule_FullMethodName: sharedChanges,

	pb.HoldService_SetHolds_FullMethodName:  sourceChanges,
	pb.HoldService_LiftHolds_FullMethodName: sourceChanges,
	pb.HoldService_ListHolds_FullMethodName: sourceReads,

	pb.AdminService_GetStats_FullMethodName:       countReads,
	pb.AdminService_ListLeases_FullMethodName:     leaseReads,
	pb.AdminService_ListCollectors_FullMethodName: sharedReads,
	pb.AdminService_Explain_FullMethodName:        sourceReads,
	pb.AdminService_ListPools_FullMethodName:      sharedReads,
	pb.AdminService_ListFindings_FullMethodName:   findingReads,

	pb.AdminService_ListAuditEntries_FullMethodName: adminReads,
	pb.AdminService_ExplainAccess_FullMethodName:    sharedChanges,
	pb.AdminService_ReleaseCollector_FullMethodName: sharedChanges,
	pb.AdminService_MoveOwner_FullMethodName:        sharedChanges,

	grpc_health_v1.Health_Check_FullMethodName: probes,
	grpc_health_v1.Health_List_FullMethodName:  probes,
	grpc_health_v1.Health_Watch_FullMethodName: probes,

	// What reflection shows is published with the .proto files, but to make it costs processor time.
	grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName:      anyRole,
	grpc_reflection_v1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: anyRole,
}

// Methods are the full names of all methods that have a row.
func Methods() []string {
	names := make([]string, 0, len(rules))
	for name := range rules {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fullName finds a method by its full name, or by the last part of it.
func fullName(method string) (string, bool) {
	if _, known := rules[method]; known {
		return method, true
	}
	for _, name := range Methods() {
		if strings.HasSuffix(name, "/"+method) || strings.TrimPrefix(name, "/") == method {
			return name, true
		}
	}
	return "", false
}

// shortName is the last part of a method's name.
func shortName(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }

// may are those of the grants that allow a method by their role, or the error of their lack.
func may(method, identity string, grants []*Grant) ([]*Grant, error) {
	r, known := rules[method]
	var allowing []*Grant
	for _, g := range grants {
		if known && (g.Role == Admin || slices.Contains(r.roles, g.Role)) {
			allowing = append(allowing, g)
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("no rule lets %s be called", shortName(method))
	case len(allowing) > 0:
		return allowing, nil
	case len(grants) == 0:
		return nil, fmt.Errorf("no grant is to %s; %s is for the role %s", identity, shortName(method), r.needed())
	}
	has := make([]string, len(grants))
	for i, g := range grants {
		has[i] = string(g.Role)
	}
	return nil, fmt.Errorf("%s has the role %s; %s is for the role %s", identity, strings.Join(has, ", "), shortName(method), r.needed())
}

// needed names the roles of a rule.
func (r rule) needed() string {
	var names []string
	for _, role := range r.roles {
		names = append(names, string(role))
	}
	if len(names) == 0 {
		return string(Admin)
	}
	return strings.Join(names, ", ") + " or " + string(Admin)
}

// Explain reports whether an identity may call a method, named in full or by its last part, and which rule allows or
// refuses it. Without an identity it is explained for a caller without a credential; a nil policy lets everybody in. Of a grant that is narrowed it names the bounds; whether a call is within them depends on its request.
func (p *Policy) Explain(method, identity string) (allowed bool, text string, err error) {
	name, known := fullName(method)
	switch {
	case !known:
		return false, "", fmt.Errorf("method %q is none of this server", method)
	case rules[name].anyone:
		return true, shortName(name) + " is for anyone", nil
	case p == nil:
		return true, "the dispatcher has no policy: whoever connects may do everything", nil
	case identity == "":
		return false, shortName(name) + " needs a credential, and is for the role " + rules[name].needed(), nil
	}
	grants, refused := may(name, identity, p.GrantsTo(identity))
	if refused != nil {
		return false, refused.Error(), nil
	}
	for _, g := range grants {
		if rules[name].scope == ofAll && g.isNarrow() {
			text = fmt.Sprintf("%s needs a grant for all sources; there is a %v", shortName(name), g)
			continue
		}
		return true, "allowed by the " + g.String(), nil
	}
	return false, text, nil
}
