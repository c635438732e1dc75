package root_test

import (
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// Where the environment names nobody, as in a container, the record says which user did it
// on which host.
func TestRecord_operator(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	delete(env, "USER")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host = strings.ToLower(host)
	by := func() string {
		t.Helper()
		return clitest.Command(t, env, "hold", "set", "--pool", "browser", "--replace", "-o", "json").Out
	}
	if got, want := by(), `"by": "`+me.Username+"@"+host+`"`; !strings.Contains(got, want) {
		t.Errorf("it is recorded in %s, want %s", got, want)
	}
	env["LOGNAME"] = "bob"
	if got := by(); !strings.Contains(got, `"by": "bob"`) {
		t.Errorf("LOGNAME is not taken: %s", got)
	}
	env["WAGGLE_BY"] = "eve"
	if got := by(); !strings.Contains(got, `"by": "eve"`) {
		t.Errorf("WAGGLE_BY is not taken: %s", got)
	}
}
