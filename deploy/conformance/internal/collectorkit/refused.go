package collectorkit

import (
	"google.golang.org/grpc/codes"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// refusedScenarios are about answers after which going on is of no use.
func refusedScenarios() []Scenario {
	return []Scenario{
		{
			Name: "refused/replaced", Rule: "8: COLLECTOR_REPLACED: stop, your leases have expired",
			excused: []string{ruleBeatsTimes},
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000})
				k.start()
				k.started(ids...)
				replaced := wgError(codes.FailedPrecondition, "COLLECTOR_REPLACED", 0)
				k.on(func(h *hooks) { h.every = func(*call) error { return replaced } })
				k.endStreams(replaced)
				k.canceled(soon, ids[0])
				k.endedByItself("COLLECTOR_REPLACED")
				want(len(k.reportsOf(ids[0])) == 0, "a replaced collector reported its task")
			},
		},
	}
}

var _ = wagglev1.ErrorReason_ERROR_REASON_INTERNAL
