//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	dockerfile = "../Dockerfile"
	// deployedStore is the store that the image, the compose files and the units name.
	deployedStore = "file:/var/lib/waggle"
	// imageLimit is the largest image in compressed bytes, without about a megabyte of its base.
	imageLimit = 24 << 20
)

// testedStore is the store that tests put in the place of deployedStore.
func testedStore(dir string) string { return "file:" + dir }

// TestDockerfile runs the steps of the Dockerfile without a container engine. It puts what they copy into an empty root,
// and runs the programs of the image there, as its user.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	context := sourceTree(t)
	removeIgnored(t, context)
	i := readDockerfile(t).build(t, context)
	if out, err := i.command("version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "waggle "+sourceTag+" ") {
		t.Errorf("waggle version: %v, %s, want %s", err, out, sourceTag)
	}
	if size := i.compressed(t); size > imageLimit {
		t.Errorf("the image adds %d compressed bytes to its base, over %d", size, imageLimit)
	} else {
		t.Logf("the image adds %.1f MB (compressed) to its base", float64(size)/1e6)
	}
	before := i.outsideVolumes(t)

	serve := func() *dispatcher { return awaitServing(t, launchCommand(t, "serve", i.command(i.cmd...))) }
	i.env["WAGGLE_LISTEN"], i.env["WAGGLE_HTTP"] = "127.0.0.1:0", "127.0.0.1:0"
	i.env["WAGGLE_STORE"] = testedStore(strings.TrimPrefix(deployedStore, "file:"))
	d := serve()
	i.env["WAGGLE_SERVER"] = d.addr
	if out, err := i.healthcheck().CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", i.health, err, out)
	}
	i.crawl(t)

	d.stop(drainLimit)
	if out, err := i.healthcheck().CombinedOutput(); err == nil {
		t.Errorf("healthy without a dispatcher: %s", out)
	}
	i.env["WAGGLE_SERVER"] = serve().addr
	out, err := i.command("source", "list").CombinedOutput()
	if kept := strings.Contains(string(out), "my.site"); err != nil || kept != (i.env["WAGGLE_STORE"] != "memory") {
		t.Errorf("after a restart on %s: %v\n%s", i.env["WAGGLE_STORE"], err, out)
	}
	if after := i.outsideVolumes(t); !maps.Equal(before, after) {
		t.Errorf("files outside of volumes were %v and are %v", before, after)
	}
}

// crawl crawls a page with the collector of the image, which keeps it in the volume.
func (i *image) crawl(t *testing.T) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>One</title>") }))
	t.Cleanup(site.Close)
	pages := path.Join(i.volumes[0], "pages")
	c := launchCommand(t, "collect", i.command("collect", "--id", "c-1", "--out", pages, "--allow-private"))
	for _, args := range [][]string{{"source", "create", "my.site", "--seed", site.URL, "--every", "1d"}, {"source", "wait", "my.site", "--for", "20s"}} {
		if out, err := i.command(args...).CombinedOutput(); err != nil {
			t.Errorf("waggle %v: %v\n%s", args, err, out)
		}
	}
	c.stop(drainLimit)
	if found, err := os.ReadFile(filepath.Join(i.root, pages, "pages-c-1.jsonl")); err != nil || !strings.Contains(string(found), site.URL) {
		t.Errorf("pages: %v, %s", err, found)
	}
}

// image is what the last stage of a Dockerfile makes.
type image struct {
	steps                   []instruction
	uid, gid                int
	env                     map[string]string
	volumes, exposed        []string
	entrypoint, cmd, health []string

	// While it is built, of the present stage; in the end of the last one.
	context, workdir string
	root             string            // a directory with the files that the stage has beyond its base
	stages           map[string]string // roots by the names of stages
}

// instruction is one of a Dockerfile.
type instruction struct {
	line  int
	name  string
	flags map[string]string
	rest  string
}

// instructionFlag is a flag between the name of an instruction and the rest.
var instructionFlag = regexp.MustCompile(`^--([a-z-]+)=(\S*)\s+`)

// readDockerfile reads the Dockerfile, and the settings of the image.
func readDockerfile(t *testing.T) *image {
	t.Helper()
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	i := &image{env: map[string]string{}, stages: map[string]string{}}
	whole := "" // a line with those that continue it
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if part, more := strings.CutSuffix(line, `\`); more {
			whole += part
			continue
		}
		name, rest, _ := strings.Cut(whole+line, " ")
		step := instruction{n + 1, name, map[string]string{}, strings.TrimSpace(rest)}
		for m := instructionFlag.FindStringSubmatch(step.rest); m != nil; m = instructionFlag.FindStringSubmatch(step.rest) {
			step.flags[m[1]], step.rest = m[2], step.rest[len(m[0]):]
		}
		i.steps, whole = append(i.steps, step), ""
		i.set(t, step)
	}
	return i
}

// set notes what an instruction sets for the image.
func (i *image) set(t *testing.T, s instruction) {
	t.Helper()
	switch s.name {
	case "ENV":
		for pair := range strings.FieldsSeq(s.rest) {
			name, value, _ := strings.Cut(pair, "=")
			i.env[name] = value
		}
	case "USER":
		i.uid, i.gid = s.owner(t, s.rest)
	case "VOLUME":
		i.volumes = append(i.volumes, strings.Fields(s.rest)...)
	case "EXPOSE":
		i.exposed = strings.Fields(s.rest)
	case "ENTRYPOINT":
		i.entrypoint = s.list(t, s.rest)
	case "CMD":
		i.cmd = s.list(t, s.rest)
	case "HEALTHCHECK":
		i.health = s.list(t, strings.TrimPrefix(s.rest, "CMD "))
	case "FROM", "ARG", "WORKDIR", "COPY", "RUN":
	default:
		t.Fatalf("%s:%d: %s is not known to this test", dockerfile, s.line, s.name)
	}
}

// list reads a command as a list of words: the image has no shell that could read another form.
func (s instruction) list(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil || len(words) == 0 {
		t.Fatalf("%s:%d: %s is no list of words: %v", dockerfile, s.line, text, err)
	}
	return words
}

// owner reads a uid and a gid. Names would need the files of the base.
func (s instruction) owner(t *testing.T, text string) (uid, gid int) {
	t.Helper()
	if _, err := fmt.Sscanf(text, "%d:%d", &uid, &gid); err != nil || uid == 0 || gid == 0 {
		t.Fatalf("%s:%d: %q is no UID:GID without root: %v", dockerfile, s.line, text, err)
	}
	return uid, gid
}

// build runs the steps.
func (i *image) build(t *testing.T, context string) *image {
	t.Helper()
	i.context = context
	for _, s := range i.steps {
		switch s.name {
		case "FROM":
			i.from(t, s)
		case "WORKDIR":
			i.workdir = s.rest
			if err := os.MkdirAll(filepath.Join(i.root, i.workdir), 0o755); err != nil {
				t.Fatal(err)
			}
		case "COPY":
			i.copy(t, s)
		case "RUN":
			run := exec.CommandContext(t.Context(), "sh", "-c", s.rest)
			run.Dir = filepath.Join(i.root, i.workdir)
			if out, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%s:%d: RUN %s: %v\n%s", dockerfile, s.line, s.rest, err, out)
			}
		}
	}
	return i
}

// from begins a stage, in an empty root.
func (i *image) from(t *testing.T, s instruction) {
	t.Helper()
	base, name, _ := strings.Cut(s.rest, " AS ")
	if version, isGo := strings.CutPrefix(base, "golang:"); isGo {
		mod, err := os.ReadFile(filepath.Join(i.context, "go.mod"))
		if err != nil || !strings.Contains(string(mod), "\ngo "+version+".") {
			t.Errorf("%s:%d: go.mod (%v) does not name Go %s", dockerfile, s.line, err, version)
		}
	}
	// Where the programs of the image may go, as t.TempDir is closed to other users.
	root, err := os.MkdirTemp("", "waggle-image") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	i.root, i.workdir, i.stages[name] = root, "/", root
}

// copy copies files of the context or of another stage.
func (i *image) copy(t *testing.T, s instruction) {
	t.Helper()
	from := i.context
	if stage := s.flags["from"]; stage != "" {
		from = i.stages[stage]
	}
	paths := strings.Fields(s.rest)
	last := len(paths) - 1
	to := paths[last]
	if !path.IsAbs(to) { // path.Join forgets the slash of a directory
		to = i.workdir + "/" + to
	}
	to = i.root + to
	for _, name := range paths[:last] {
		source, dir := filepath.Join(from, name), filepath.Dir(to)
		if info, err := os.Stat(source); err != nil {
			t.Fatalf("%s:%d: %v", dockerfile, s.line, err)
		} else if info.IsDir() { // its files are copied, not itself
			source, dir = source+"/.", to
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", source, to).CombinedOutput(); err != nil {
			t.Fatalf("%s:%d: %v: %s", dockerfile, s.line, err, out)
		}
	}
	if owner := s.flags["chown"]; owner != "" && os.Geteuid() == 0 {
		uid, gid := s.owner(t, owner)
		if err := os.Lchown(to, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// command is the entry point of the image with arguments.
func (i *image) command(args ...string) *exec.Cmd {
	return i.exec(slices.Concat(i.entrypoint, args))
}

func (i *image) healthcheck() *exec.Cmd { return i.exec(i.health) }

// exec is a command in the root of the image, by its user and with its environment alone. Who is not root here becomes
// that user in a user namespace.
func (i *image) exec(words []string) *exec.Cmd {
	cmd := &exec.Cmd{Path: words[0], Args: words, Dir: "/", Env: []string{}}
	for name, value := range i.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}
	} else {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: i.uid, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: i.gid, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// compressed is how many bytes the files of the image take in a registry.
func (i *image) compressed(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", `tar -C "$0" -c . | gzip | wc -c`, i.root).Output()
	if err != nil {
		t.Fatal(err)
	}
	size, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// outsideVolumes are the files of the image that are in no volume, with their sizes and times.
func (i *image) outsideVolumes(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(i.root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(i.volumes, "/"+name):
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err == nil {
			found[name] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// removeIgnored removes from a build context what .dockerignore lists. A file of the repository must not be among it: Go
// would find it missing, and call the version dirty.
func removeIgnored(t *testing.T, context string) {
	t.Helper()
	text, err := os.ReadFile(dockerfile + ".dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if line == "" || strings.ContainsAny(line, "*?[!") {
			t.Fatalf(".dockerignore: %q is not known to this test", line)
		}
		if err := os.RemoveAll(filepath.Join(context, line)); err != nil {
			t.Fatal(err)
		}
	}
}
