//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// composeReader renders a compose file and checks it against the schema, without a container engine.
const composeReader = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"

// longestStop is the default of --drain-timeout and --stop-timeout. Who stops a process must give it longer.
const longestStop = 20 * time.Second

// TestCompose starts what each compose file describes as processes of this machine, collectors first. All dispatchers
// then have all collectors, and each process ends within its grace period.
func TestCompose(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"compose.yaml":       "collect-1 collect-2 serve",
		"compose.redis.yaml": "collect-1 collect-2 redis serve-1 serve-2",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			c := readCompose(t, file)
			names := slices.Sorted(maps.Keys(c.Services))
			if got := strings.Join(names, " "); got != want {
				t.Fatalf("the services are %s, want %s", got, want)
			}
			here := c.here(t)
			started := map[string]*process{}
			var dispatchers, collectors []string
			for _, name := range names {
				if started[name] = c.start(t, name, here); strings.HasPrefix(name, "serve") {
					dispatchers = append(dispatchers, name)
				} else if strings.HasPrefix(name, "collect") {
					collectors = append(collectors, name)
				}
			}
			for _, name := range dispatchers {
				started[name].line(`"serving"`, startLimit)
			}
			for _, name := range dispatchers {
				until(t, startLimit, fmt.Sprintf("%s has %v", name, collectors), func() bool {
					list := command(t, here[name+":7070"], "collector", "list")
					return !slices.ContainsFunc(collectors, func(id string) bool { return !strings.Contains(list, id+" ") })
				})
			}
			for _, name := range slices.Concat(collectors, dispatchers) {
				grace, err := time.ParseDuration(c.Services[name].StopGracePeriod)
				if err != nil || grace <= longestStop {
					t.Errorf("%s has %s to stop (%v), no more than %s", name, grace, err, longestStop)
				}
				started[name].stop(drainLimit)
			}
		})
	}
}

// compose is a compose file as its reader renders it.
type compose struct {
	file     string
	image    *image
	Services map[string]struct {
		Build           struct{ Context, Dockerfile string }
		Command         []string
		Environment     map[string]string
		Image           string
		StopGracePeriod string `json:"stop_grace_period"`
		Ports           []struct {
			HostIP string `json:"host_ip"`
			Target int
		}
		Volumes []struct{ Type, Source, Target string }
	}
	Volumes map[string]any
}

func readCompose(t *testing.T, file string) *compose {
	t.Helper()
	read := exec.CommandContext(t.Context(), "go", "run", composeReader, "-format", "json", file)
	read.Dir = ".." // to which the file is relative
	out, err := read.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	_, model, _ := strings.Cut(string(out), "{") // after what go says of modules that it downloads
	c := &compose{file: file, image: readDockerfile(t)}
	if err := json.Unmarshal([]byte("{"+model), c); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	return c
}

// here has what is in the place of the addresses and directories of the services: free ports of this machine and
// directories of the test.
func (c *compose) here(t *testing.T) map[string]string {
	t.Helper()
	here := map[string]string{}
	for name := range c.Services {
		for _, port := range []string{"6379", "7070", "7080"} {
			listener := listenAside(t, "127.0.0.1")
			here[name+":"+port] = listener.Addr().String()
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range c.Volumes {
		here[name] = t.TempDir()
	}
	return here
}

// start starts a service.
func (c *compose) start(t *testing.T, name string, here map[string]string) *process {
	t.Helper()
	s := c.Services[name]
	for _, p := range s.Ports {
		if p.HostIP != "127.0.0.1" || !slices.Contains(c.image.exposed, fmt.Sprint(p.Target)) {
			t.Errorf("%s publishes port %d at %s, want one of %v at 127.0.0.1", name, p.Target, p.HostIP, c.image.exposed)
		}
	}
	var pairs []string
	for at, address := range here {
		service, port, isAddress := strings.Cut(at, ":")
		if isAddress {
			pairs = append(pairs, at, address)
		}
		if isAddress && service == name {
			pairs = append(pairs, "0.0.0.0:"+port, address)
		}
	}
	for _, v := range s.Volumes {
		if v.Type == "bind" {
			here[v.Source] = v.Source
		}
		pairs = append(pairs, deployedStore, testedStore(here[v.Source]), v.Target, here[v.Source])
	}
	local := strings.NewReplacer(pairs...)
	if s.Image == "redis:7" {
		args := strings.Split(local.Replace(strings.Join(s.Command[1:], "\n")), "\n")
		_, port, _ := strings.Cut(here[name+":6379"], ":")
		return launch(t, name, s.Command[0], append(args, "--bind", "127.0.0.1", "--port", port)...)
	}
	if got, err := filepath.Abs(dockerfile); err != nil || filepath.Join(s.Build.Context, s.Build.Dockerfile) != got {
		t.Errorf("%s is built by %s in %s (%v)", name, s.Build.Dockerfile, s.Build.Context, err)
	}
	args := s.Command
	if args == nil {
		args = c.image.cmd
	}
	env := maps.Clone(c.image.env)
	maps.Copy(env, s.Environment)
	checkVariables(t, args[0], s.Environment)
	cmd := exec.Command(programs.path("waggle"), args...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+local.Replace(value))
	}
	return launchCommand(t, name, cmd)
}

// checkVariables holds that each variable sets a flag of a subcommand: others are ignored without an error.
func checkVariables(t *testing.T, subcommand string, env map[string]string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), programs.path("waggle"), subcommand, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`\[(WAGGLE_[A-Z_]+)\]`).FindAllStringSubmatch(string(help), -1)
	for name := range env {
		if !slices.ContainsFunc(known, func(m []string) bool { return m[1] == name }) {
			t.Errorf("waggle %s has no flag that %s sets", subcommand, name)
		}
	}
}
