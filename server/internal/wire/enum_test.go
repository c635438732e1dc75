package wire_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// numbers are the domain's values of one enum, each beside the API's value of the same meaning.
type numbers map[protoreflect.Enum]int

// TestEnums_numbers holds the enums that are converted by number to the API's: each of its values is one of the domain's,
// and has that number.
func TestEnums_numbers(t *testing.T) {
	t.Parallel()
	for _, enum := range []numbers{
		{
			pb.TaskState_TASK_STATE_SCHEDULED: int(dispatch.StateScheduled), pb.TaskState_TASK_STATE_READY: int(dispatch.StateReady),
			pb.TaskState_TASK_STATE_LEASED: int(dispatch.StateLeased), pb.TaskState_TASK_STATE_DONE: int(dispatch.StateDone),
			pb.TaskState_TASK_STATE_DEAD: int(dispatch.StateDead), pb.TaskState_TASK_STATE_CANCELED: int(dispatch.StateCanceled),
		},
		{
			pb.EmptyReason_EMPTY_REASON_NO_TASKS: int(engine.EmptyNoTasks), pb.EmptyReason_EMPTY_REASON_THROTTLED: int(engine.EmptyThrottled),
			pb.EmptyReason_EMPTY_REASON_HELD: int(engine.EmptyHeld), pb.EmptyReason_EMPTY_REASON_COLLECTOR_HELD: int(engine.EmptyCollectorHeld),
			pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING: int(engine.EmptyDispatcherDraining), pb.EmptyReason_EMPTY_REASON_TOKEN_USED: int(engine.EmptyTokenUsed),
		},
		{
			pb.ReportCode_REPORT_CODE_OK: int(engine.ReportOK), pb.ReportCode_REPORT_CODE_ALREADY_REPORTED: int(engine.ReportAlready),
			pb.ReportCode_REPORT_CODE_LEASE_LOST: int(engine.ReportLeaseLost), pb.ReportCode_REPORT_CODE_NOT_FOUND: int(engine.ReportNotFound),
			pb.ReportCode_REPORT_CODE_STORE_FULL:        int(engine.ReportStoreFull),
			pb.ReportCode_REPORT_CODE_STORE_UNAVAILABLE: int(engine.ReportUnavailable),
		},
		{
			pb.DiscoverCode_DISCOVER_CODE_CREATED: int(engine.DiscoverCreated), pb.DiscoverCode_DISCOVER_CODE_EXISTS: int(engine.DiscoverExists),
			pb.DiscoverCode_DISCOVER_CODE_REVISIT: int(engine.DiscoverRevisit), pb.DiscoverCode_DISCOVER_CODE_FILTERED: int(engine.DiscoverFiltered),
			pb.DiscoverCode_DISCOVER_CODE_LIMITED: int(engine.DiscoverLimited), pb.DiscoverCode_DISCOVER_CODE_INVALID: int(engine.DiscoverInvalid),
		},
		{
			pb.FilterReason_FILTER_REASON_NO_RULE: int(dispatch.FilterNoRule), pb.FilterReason_FILTER_REASON_DEPTH: int(dispatch.FilterDepth),
			pb.FilterReason_FILTER_REASON_HOST: int(dispatch.FilterHost), pb.FilterReason_FILTER_REASON_INCLUDE: int(dispatch.FilterInclude),
			pb.FilterReason_FILTER_REASON_EXCLUDE: int(dispatch.FilterExclude),
		},
		{
			pb.Relation_RELATION_LINK: int(dispatch.RelationLink), pb.Relation_RELATION_FEED_ITEM: int(dispatch.RelationFeedItem),
			pb.Relation_RELATION_SITEMAP: int(dispatch.RelationSitemap), pb.Relation_RELATION_REDIRECT: int(dispatch.RelationRedirect),
		},
		{
			pb.CancelReason_CANCEL_REASON_TASK_CANCELED:  int(dispatch.CancelTask),
			pb.CancelReason_CANCEL_REASON_SOURCE_DELETED: int(dispatch.CancelSourceDeleted),
			pb.CancelReason_CANCEL_REASON_HELD:           int(dispatch.CancelHeld),
		},
		{
			pb.SubmitCode_SUBMIT_CODE_CREATED: int(dispatch.SubmitCreated), pb.SubmitCode_SUBMIT_CODE_EXISTS: int(dispatch.SubmitExists),
			pb.SubmitCode_SUBMIT_CODE_REVISIT: int(dispatch.SubmitRevisit), pb.SubmitCode_SUBMIT_CODE_LIMITED: int(dispatch.SubmitLimited),
			pb.SubmitCode_SUBMIT_CODE_INVALID: int(pb.SubmitCode_SUBMIT_CODE_INVALID), // an error in the domain
		},
		{
			pb.ApplyCode_APPLY_CODE_CREATED: int(operate.SpecCreated), pb.ApplyCode_APPLY_CODE_UPDATED: int(operate.SpecUpdated),
			pb.ApplyCode_APPLY_CODE_UNCHANGED: int(operate.SpecUnchanged),
			pb.ApplyCode_APPLY_CODE_INVALID:   int(pb.ApplyCode_APPLY_CODE_INVALID), // an error in the domain
		},
		{
			pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_FOUND: int(operate.ChangeNotFound), pb.TaskChangeCode_TASK_CHANGE_CODE_CANCELED: int(operate.ChangeCanceled),
			pb.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED:  int(operate.ChangeCancelRequested),
			pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_REQUESTED: int(operate.ChangeAlreadyRequested),
			pb.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_SETTLED:   int(operate.ChangeAlreadySettled),
			pb.TaskChangeCode_TASK_CHANGE_CODE_RETRIED:           int(operate.ChangeRetried), pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_SETTLED: int(operate.ChangeNotSettled),
			pb.TaskChangeCode_TASK_CHANGE_CODE_LIMITED: int(operate.ChangeLimited), pb.TaskChangeCode_TASK_CHANGE_CODE_REFUSED: int(operate.ChangeRefused),
			pb.TaskChangeCode_TASK_CHANGE_CODE_REVOKED: int(operate.ChangeRevoked), pb.TaskChangeCode_TASK_CHANGE_CODE_NOT_LEASED: int(operate.ChangeNotLeased),
			pb.TaskChangeCode_TASK_CHANGE_CODE_OTHER_LEASE: int(operate.ChangeOtherLease), pb.TaskChangeCode_TASK_CHANGE_CODE_OTHER_STATE: int(operate.ChangeOtherState),
		},
		{
			pb.SourceHealth_SOURCE_HEALTH_OK: int(operate.HealthOK), pb.SourceHealth_SOURCE_HEALTH_LATE: int(operate.HealthLate),
			pb.SourceHealth_SOURCE_HEALTH_FAILING: int(operate.HealthFailing), pb.SourceHealth_SOURCE_HEALTH_BACKED_OFF: int(operate.HealthBackedOff),
			pb.SourceHealth_SOURCE_HEALTH_HELD: int(operate.HealthHeld), pb.SourceHealth_SOURCE_HEALTH_STUCK: int(operate.HealthStuck),
			pb.SourceHealth_SOURCE_HEALTH_EMPTY: int(operate.HealthEmpty), pb.SourceHealth_SOURCE_HEALTH_QUIET: int(operate.HealthQuiet),
			pb.SourceHealth_SOURCE_HEALTH_PAGES_FAIL: int(operate.HealthPagesFail),
		},
		{
			pb.HeldKind_HELD_KIND_TASK: int(operate.HeldTask), pb.HeldKind_HELD_KIND_SOURCE: int(operate.HeldSource),
			pb.HeldKind_HELD_KIND_QUEUE: int(operate.HeldQueue), pb.HeldKind_HELD_KIND_POOL: int(operate.HeldPool),
			pb.HeldKind_HELD_KIND_EVERYTHING: int(operate.HeldEverything),
		},
	} {
		enum.check(t)
	}
}

func (n numbers) check(t *testing.T) {
	t.Helper()
	var about protoreflect.EnumDescriptor
	for value, number := range n {
		about = value.Descriptor()
		if int(value.Number()) != number {
			t.Errorf("%v has the number %d, and %d in the domain", value, value.Number(), number)
		}
	}
	if all := about.Values().Len() - 1; len(n) != all { // the unspecified one apart
		t.Errorf("%s has %d values, and the domain %d", about.Name(), all, len(n))
	}
}

// TestFailureReasons holds the number of each reason, and its scope.
func TestFailureReasons(t *testing.T) {
	t.Parallel()
	values := pb.FailureReason(0).Descriptor().Values()
	known := 1 // the unspecified one
	for scope, reasons := range map[dispatch.FailureScope]map[string]int{
		dispatch.ScopeTask: {
			"NOT_FOUND": 1, "FORBIDDEN": 2, "GONE": 3, "CLIENT_ERROR": 4, "PARSE": 5, "TOO_LARGE": 6, "ROBOTS_DENIED": 7,
			"UNSUPPORTED_CONTENT": 8, "REDIRECT": 9, "BAD_REQUEST": 10, "HANDLER": 11, "OTHER": 99,
		},
		dispatch.ScopeHost:      {"DNS": 100, "CONNECT": 101, "TLS": 102, "THROTTLED": 103, "ROBOTS_UNAVAILABLE": 104},
		dispatch.ScopeCollector: {"PROXY": 200, "DISK": 201, "BROWSER": 202, "NETWORK": 203, "INTERNAL": 204},
		dispatch.ScopeURL:       {"TIMEOUT": 300, "SERVER_ERROR": 301, "CONNECTION_LOST": 302},
	} {
		for name, number := range reasons {
			value := values.ByName(protoreflect.Name("FAILURE_REASON_" + name))
			if value == nil || int(value.Number()) != number || dispatch.FailureReason(number).Scope() != scope {
				t.Errorf("%s is %v, want number %d and scope %d", name, value, number, scope)
			}
			known++
		}
	}
	if values.Len() != known {
		t.Errorf("%d reasons, want %d", values.Len(), known)
	}
	for number, scope := range map[dispatch.FailureReason]dispatch.FailureScope{
		98: dispatch.ScopeTask, 199: dispatch.ScopeHost, 299: dispatch.ScopeCollector, 399: dispatch.ScopeURL, 1 << 30: dispatch.ScopeURL,
	} {
		if number.Scope() != scope {
			t.Errorf("a later reason %d has scope %d, want %d", number, number.Scope(), scope)
		}
	}
}

// TestEnums_names holds that each way in which an attempt ends, and each reason for which a lease is lost, has a name in
// the API, and that the API has no name beside these.
func TestEnums_names(t *testing.T) {
	t.Parallel()
	var r wire.Reports
	var results, reasons []protoreflect.EnumNumber
	for result := dispatch.ResultNone + 1; result.String() != "unknown"; result++ {
		told := r.Results([]engine.ReportResult{{Code: engine.ReportAlready, Result: result}})[0].GetResult()
		if told == pb.AttemptResult_ATTEMPT_RESULT_UNSPECIFIED {
			t.Errorf("a result that is %s has no name", result)
		}
		results = append(results, told.Number())
	}
	for lost := dispatch.LostNone + 1; lost <= dispatch.LostMalformed; lost++ {
		told := r.Results([]engine.ReportResult{{Code: engine.ReportLeaseLost, Lost: lost}})[0].GetLostReason()
		if told == pb.LostReason_LOST_REASON_UNSPECIFIED {
			t.Errorf("the reason %d has no name", lost)
		}
		reasons = append(reasons, told.Number())
	}
	for values, told := range map[protoreflect.EnumDescriptor][]protoreflect.EnumNumber{
		pb.AttemptResult(0).Descriptor(): results, pb.LostReason(0).Descriptor(): reasons,
	} {
		for i := range values.Values().Len() {
			if value := values.Values().Get(i); value.Number() != 0 && !slices.Contains(told, value.Number()) {
				t.Errorf("nothing is told as %s", value.Name())
			}
		}
	}
}

// TestEnums_findings holds that the API knows each kind of finding, and no others.
func TestEnums_findings(t *testing.T) {
	t.Parallel()
	for _, kind := range operate.FindingKinds() {
		if pb.FindingKind_value["FINDING_KIND_"+string(kind)] == 0 {
			t.Errorf("the API has no finding %s", kind)
		}
	}
	if known, values := len(operate.FindingKinds()), len(pb.FindingKind_value); known != values-1 {
		t.Errorf("%d kinds of findings, and %d in the API", known, values-1)
	}
}
