package collectorkit

import (
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// clientName is what a client calls itself.
var clientName = regexp.MustCompile(`^[a-z0-9._-]+/[0-9][0-9A-Za-z.+-]*$`)

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
				verdict.Want(len(k.reportsOf(ids[0])) == 0, "a replaced collector reported its task")
			},
		},
		{
			Name: "refused/denied", Rule: "4: PERMISSION_DENIED: your identity may not make this call: stop",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.every = func(*call) error { return wgError(codes.PermissionDenied, "PERMISSION_DENIED", 0) }
				})
				k.start()
				k.endedByItself("PERMISSION_DENIED")
			},
		},
		{
			Name: "refused/invalid", Rule: "4: INVALID_FIELD: do not repeat the request",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.fetch = failing[wagglev1.FetchTaskResponse](always, wgError(codes.InvalidArgument, "INVALID_FIELD", 0))
				})
				k.start()
				k.endedByItself("INVALID_FIELD")
			},
		},
		{
			Name: "refused/too-old", Rule: "3, 4: name yourself as waggle-client; CLIENT_TOO_OLD: this version is not served any more: stop",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.every = func(*call) error { return wgError(codes.FailedPrecondition, "CLIENT_TOO_OLD", 0) }
				})
				k.start()
				k.endedByItself("CLIENT_TOO_OLD")
				for _, c := range k.seen(func(*call) bool { return true }) {
					named := strings.Join(c.header.Get("waggle-client"), ",")
					verdict.Want(clientName.MatchString(named), "%s came with the waggle-client %q, want NAME/VERSION", c.method, named)
				}
			},
		},
	}
}
