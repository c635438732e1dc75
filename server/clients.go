package server

import (
	"slices"
	"strconv"
	"strings"

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

// The characters of a client's name and version, and how many each has at most.
const (
	clientName    = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	clientVersion = clientName + "ABCDEFGHIJKLMNOPQRSTUVWXYZ+"
	longestClient = 64
)

// checkClient refuses a call of a client that is too old. It also refuses one that names itself in another form than
// name/version: to serve that would let an old client in by a mistake, which whoever writes a client finds at the first call.
// Clients that do not name themselves, such as curl and grpcurl, are served.
func checkClient(client string) error {
	if client == "" {
		return nil
	}
	name, version, _ := strings.Cut(client, "/")
	if !isMadeOf(name, clientName) || !isMadeOf(version, clientVersion) {
		return dispatch.Invalid(clientHeader, client, "must be name/version, as in my-crawler/1.2.0")
	}
	for _, rule := range slices.Backward(oldestClients) {
		if rule.name != name {
			continue
		}
		if _, ok := versionNumbers(version); !ok {
			return dispatch.Invalid(clientHeader, client, "must have a version that begins with numbers, as in "+rule.name+"/1.2.0")
		}
		if compareVersions(version, rule.oldest) >= 0 {
			return nil
		}
		return &wire.Refusal{
			Code: codes.FailedPrecondition, Reason: pb.ErrorReason_ERROR_REASON_CLIENT_TOO_OLD, Text: "client too old: " + rule.why,
			Pairs: []string{"client", client, "oldest_version", rule.oldest, "link", clientsLink},
		}
	}
	return nil
}

// isMadeOf reports whether a text has 1 to [longestClient] characters, all of them of those.
func isMadeOf(text, characters string) bool {
	return text != "" && len(text) <= longestClient && strings.Trim(text, characters) == ""
}

// compareVersions compares the numbers with which versions begin.
func compareVersions(a, b string) int {
	x, _ := versionNumbers(a)
	y, _ := versionNumbers(b)
	return slices.Compare(x[:], y[:])
}

// versionNumbers are up to three numbers with which a version begins, as 1.2.0 and v1.2 do; those that are left out are 0. What
// follows does not count, so pre-releases are served, however their language spells them.
func versionNumbers(version string) (numbers [3]int, ok bool) {
	rest := strings.TrimPrefix(version, "v")
	for i := range numbers {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil { // there is none, or it is too long
			return numbers, i > 0
		}
		numbers[i] = n
		if rest, ok = strings.CutPrefix(rest[digits:], "."); !ok {
			break
		}
	}
	return numbers, true
}
