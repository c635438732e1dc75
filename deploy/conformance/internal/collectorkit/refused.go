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
		{
			Name: "refused/denied", Rule: "4: PERMISSION_DENIED: your identity may not make this call: stop",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.every = func(*call) error { return wgError(codes.PermissionDenied, "PERMISSION_DENIED", 0) }
				})
				k.launch()
				k.endedByItself("PERMISSION_DENIED")
			},
		},
		{
			Name: "refused/invalid", Rule: "4: INVALID_FIELD: do not repeat the request",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.fetch = failing[wagglev1.FetchTaskResponse](always, wgError(codes.InvalidArgument, "INVALID_FIELD", 0))
				})
				k.launch()
				k.endedByItself("INVALID_FIELD")
			},
		},
		{
			Name: "refused/too-old", Rule: "4: CLIENT_TOO_OLD: this version is not served any more: stop",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.every = func(*call) error { return wgError(codes.FailedPrecondition, "CLIENT_TOO_OLD", 0) }
				})
				k.launch()
				k.endedByItself("CLIENT_TOO_OLD")
			},
		},
	}
}
