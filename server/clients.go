package server

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// clientsLink is where the table of versions is.
const clientsLink = "https://github.com/waggle-crawl/waggle/blob/main/proto/README.md#22-clients"

// oldestClient is the oldest version of a client that dispatchers serve, from a version of theirs on.
type oldestClient struct {
	name, dispatcher, oldest string
	why                      string // the end of "client too old: ..."
}

// oldestClients has a line for each time that clients became too old; the last one of a name is in force. Clients that are
// not named here are all served. The table in proto/README.md is made of it.
var oldestClients = []oldestClient{
	{"waggle-go", "0.1.0", "0.1.0", "it is older than the first release"},
	{"waggle-python", "0.1.0", "0.1.0", "it is older than the first release"},
	{"waggle-typescript", "0.1.0", "0.1.0", "it is older than the first release"},
}

var (
	// clientForm is a name and a version.
	clientForm = regexp.MustCompile(`^([a-z0-9._-]{1,64})/([0-9a-zA-Z.+_-]{1,64})$`)

	// versionForm is what counts of a version: so pre-releases are served, however their language spells them.
	versionForm = regexp.MustCompile(`^v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?`)
)

// checkClient refuses a call of a client that is too old. It also refuses one that names itself in another form than
// name/version: to serve that would let an old client in by a mistake, which whoever writes a client finds at the first call.
// Clients that do not name themselves, such as curl and grpcurl, are served.
func checkClient(client string) error {
	if client == "" {
		return nil
	}
	parts := clientForm.FindStringSubmatch(client)
	if parts == nil {
		return dispatch.Invalid(clientHeader, client, "must be name/version, as in my-crawler/1.2.0")
	}
	for _, rule := range slices.Backward(oldestClients) {
		if rule.name != parts[1] {
			continue
		}
		if !versionForm.MatchString(parts[2]) {
			return dispatch.Invalid(clientHeader, client, "must have a version that begins with numbers, as in "+rule.name+"/1.2.0")
		}
		if compareVersions(parts[2], rule.oldest) >= 0 {
			return nil
		}
		return &wire.Refusal{
			Code: codes.FailedPrecondition, Reason: pb.ErrorReason_ERROR_REASON_CLIENT_TOO_OLD, Text: "client too old: " + rule.why,
			Pairs: []string{"client", client, "oldest_version", rule.oldest, "link", clientsLink},
		}
	}
	return nil
}

// compareVersions compares the numbers with which versions begin; one that is left out is 0.
func compareVersions(a, b string) int {
	return slices.CompareFunc(versionForm.FindStringSubmatch(a)[1:], versionForm.FindStringSubmatch(b)[1:], func(a, b string) int {
		x, _ := strconv.Atoi(a) // empty: 0; all others are numbers
		y, _ := strconv.Atoi(b)
		return cmp.Compare(x, y)
	})
}
