//go:build e2e

package e2e_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// exposureLimit is the worst exposure level that a unit may have by systemd-analyze, ten times it: 0 to 100.
const exposureLimit = "15"

// TestSystemd_units holds that systemd accepts the units and finds them hardened, and that what they start works with what
// they set.
func TestSystemd_units(t *testing.T) {
	t.Parallel()
	serve, collect := readUnit(t, "waggle-serve.service"), readUnit(t, "waggle-collect@.service")
	serve.checkSystemd(t, "waggle-serve.service")
	collect.checkSystemd(t, "waggle-collect@1.service")

	d := awaitServing(t, serve.start(t, map[string]string{"WAGGLE_LISTEN": "127.0.0.1:0", "WAGGLE_HTTP": "127.0.0.1:0"}))
	c := collect.start(t, map[string]string{"WAGGLE_SERVER": d.addr})
	until(t, startLimit, "the collector is there", func() bool {
		return strings.Contains(command(t, d.addr, "collector", "list"), "host-1 ")
	})
	c.stop(drainLimit)
	d.stop(drainLimit)
	if entries, err := os.ReadDir(filepath.Join(collect.state, "waggle-collect", "1")); err != nil || len(entries) == 0 {
		t.Errorf("the collector made nothing in its state directory: %v", err)
	}
}

// unit is a service of systemd.
type unit struct {
	text     string
	settings map[string][]string // by name, in order
	state    string              // in the place of /var/lib
}

// readUnit reads a unit, with what systemd would replace in it for an instance 1.
func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	u := unit{string(text), map[string][]string{}, t.TempDir()}
	specifiers := strings.NewReplacer("%S", u.state, "%i", "1", "%l", "host", "/usr/local/bin/", programs.dir+"/")
	for _, m := range regexp.MustCompile(`(?m)^([A-Z]\w+)=(.*)$`).FindAllStringSubmatch(u.text, -1) {
		u.settings[m[1]] = append(u.settings[m[1]], specifiers.Replace(m[2]))
	}
	if stop, err := time.ParseDuration(u.one(t, "TimeoutStopSec")); err != nil || stop <= longestStop {
		t.Errorf("%s has %s to stop (%v), no more than %s", name, stop, err, longestStop)
	}
	return u
}

// one is the value of a setting that must be there once.
func (u unit) one(t *testing.T, name string) string {
	t.Helper()
	values := u.settings[name]
	if len(values) != 1 {
		t.Fatalf("%s is %v, want one", name, values)
	}
	return values[0]
}

// checkSystemd asks systemd-analyze about the unit, as a file of this name.
func (u unit) checkSystemd(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(u.text, "/usr/local/bin/", programs.dir+"/")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+exposureLimit, file).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security %s: %v\n%s", name, err, out)
	}
	t.Log(regexp.MustCompile(`Overall exposure level .*`).FindString(string(out)))
}

// start starts what the unit starts, with an environment file.
func (u unit) start(t *testing.T, file map[string]string) *process {
	t.Helper()
	words := strings.Fields(u.one(t, "ExecStart"))
	env := map[string]string{}
	for pair := range strings.FieldsSeq(u.one(t, "Environment")) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	dir := filepath.Join(u.state, u.one(t, "StateDirectory"))
	if !slices.ContainsFunc(slices.Collect(maps.Values(env)), func(value string) bool { return strings.TrimPrefix(value, "file:") == dir }) {
		t.Errorf("%v keeps nothing in the state directory %s", env, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	maps.Copy(env, file)
	checkVariables(t, words[1], env)
	cmd := exec.Command(words[0], words[1:]...)
	for name, value := range env {
		if value == "file:"+dir {
			value = testedStore(dir)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return launchCommand(t, words[1], cmd)
}
