//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nginxConf is for one process that anybody may run, which writes to its own directory only. It tells of each request in a
// line of JSON, at the request's end; its times are in seconds with three decimals. Redirects to a directory's slash keep
// to the host as it was asked for.
const nginxConf = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
	types {
		text/html html;
		text/plain txt;
		text/css css;
		text/javascript js;
		image/png png;
		image/gif gif;
		image/jpeg jpg;
		image/svg+xml svg;
	}
	default_type application/octet-stream;
	client_body_temp_path temp;
	proxy_temp_path temp;
	fastcgi_temp_path temp;
	uwsgi_temp_path temp;
	scgi_temp_path temp;
	absolute_redirect off;
	keepalive_requests 100000;
	log_format accesses escape=json '{"end":"$msec","took":"$request_time","host":"$host","port":"$server_port",'
		'"target":"$request_uri","status":"$status","agent":"$http_user_agent"}';
	access_log access.log accesses;
%s}
`

// virtualHost is a site that an nginx serves.
type virtualHost struct {
	listen string // address:port
	name   string // of the host that is asked for; empty: any
	root   string // directory with its files
}

// nginx is a web server that others wrote, on directories.
type nginx struct {
	*process
	log string
}

// serveNginx starts an nginx, and waits until it answers.
func serveNginx(t *testing.T, hosts ...virtualHost) *nginx {
	t.Helper()
	program, err := nginxProgram()
	if err != nil {
		t.Fatalf("%v (is nginx installed? `make setup`)", err)
	}
	dir := t.TempDir()
	var servers strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&servers, "\tserver { listen %s; server_name %q; root %q; }\n", h.listen, h.name, h.root)
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, servers.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &nginx{log: filepath.Join(dir, "access.log"), process: launch(t, "nginx", program, "-p", dir, "-c", conf, "-e", "stderr")}
	for _, h := range hosts {
		until(t, startLimit, "nginx listens on "+h.listen, func() bool {
			select {
			case <-n.done:
				t.Fatalf("nginx ended: %v\n%s", n.err, n.out.tail(logTail))
			default:
			}
			conn, err := net.Dial("tcp", h.listen)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		})
	}
	return n
}

// nginxProgram finds nginx; Debian keeps it where not everybody's PATH leads.
func nginxProgram() (string, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return exec.LookPath("/usr/sbin/nginx")
	}
	return program, nil
}

// access is one request as the web server tells of it.
type access struct {
	began  time.Time // when its first bytes were read; to the millisecond, as end is
	end    time.Time // when its last bytes were sent
	host   string    // with the port, unless that is the scheme's
	target string    // path and query
	status int
	agent  string
}

func (a access) url() string { return "http://" + a.host + a.target }

// accesses are the requests that have ended so far, in the order in which they did, without the first few.
func (n *nginx) accesses(t *testing.T, without int) []access {
	t.Helper()
	text, err := os.ReadFile(n.log)
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be half written
	var found []access
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 0; lines.Scan(); number++ {
		if number < without {
			continue
		}
		a, err := parseAccess(lines.Bytes())
		if err != nil {
			t.Fatalf("%s:%d: %v", n.log, number+1, err)
		}
		found = append(found, a)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func parseAccess(line []byte) (a access, err error) {
	var raw struct {
		End    float64 `json:"end,string"`
		Took   float64 `json:"took,string"`
		Port   string  `json:"port"`
		Status int     `json:"status,string"`

		Host, Target, Agent string
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return a, fmt.Errorf("%w: %s", err, line)
	}
	a = access{host: raw.Host, target: raw.Target, status: raw.Status, agent: raw.Agent}
	a.end = time.UnixMilli(int64(raw.End*1000 + 0.5))
	a.began = a.end.Add(-time.Duration(raw.Took*1000+0.5) * time.Millisecond)
	if ip := net.ParseIP(raw.Host); ip != nil { // asked for directly, by its port
		a.host = net.JoinHostPort(raw.Host, raw.Port)
	}
	return a, nil
}

// count is how many requests have ended so far.
func (n *nginx) count(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(n.log)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}
