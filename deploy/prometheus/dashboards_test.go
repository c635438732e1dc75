package prometheus_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	grafana "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// write is set to write the dashboards of the table to ../grafana.
var write = flag.Bool("write", false, "write ../grafana/*.json")

// board is a dashboard. Its name is that of its file.
type board struct {
	name, title string
	panels      []panel
}

// panel is a graph of a dashboard. The note names the command that has what the metrics cannot have.
type panel struct {
	title, note, unit string
	queries           []query
}

// query is an expression of PromQL and the legend of its series. $job is the job of the dispatchers of one store, and that of its
// collectors begins with the same name.
type query struct{ expr, legend string }

// quantiles are two lines of a histogram, by a label.
func quantiles(metric, job, by string) []query {
	var out []query
	for _, q := range []struct{ of, name string }{{"0.5", "half within"}, {"0.99", "99 % within"}} {
		expr := `histogram_quantile(` + q.of + `, sum by (le, ` + by + `) (rate(` + metric + `_bucket{job=~"` + job + `"}[$__rate_interval])))`
		out = append(out, query{expr, q.name + " {{" + by + "}}"})
	}
	return out
}

const (
	dispatchers = "$job"
	collectors  = "$job.*collectors"
)

// found is the number of things that have findings of some kinds.
func found(kinds string) query {
	return query{`max by (kind) (waggle_findings{job=~"$job",kind=~"` + kinds + `"})`, "{{kind}}"}
}

func boards() []board {
	pagesAndFailures := panel{"Pages and failures", "waggle stats", "reqps", []query{
		{`sum(rate(waggle_pages_total{job=~"$job"}[$__rate_interval]))`, "pages"},
		{`sum(rate(waggle_outcomes_total{job=~"$job",outcome!~"succeeded|released|expired"}[$__rate_interval]))`, "failures"},
		{`sum(rate(waggle_outcomes_total{job=~"$job",outcome=~"released|expired"}[$__rate_interval]))`, "released or expired"},
	}}
	work := panel{"Work for free slots", "what could be handed out now, beside the collectors that wait: the signal for autoscaling. waggle pool list", "short", []query{
		{`max by (pool) (waggle_grantable_tasks{job=~"$job"})`, "tasks of {{pool}}"},
		{`sum(waggle_parked_fetches{job=~"$job"})`, "collectors that wait"},
	}}
	return []board{
		{"overview", "Waggle: overview", []panel{
			{"Findings", "what waggle status shows; 0 is well", "short", []query{
				{`max by (kind) (waggle_findings{job=~"$job"})`, "{{kind}}"},
			}},
			pagesAndFailures,
			{"Failures by reason", "waggle stats --output json", "reqps", []query{
				{`sum by (outcome) (rate(waggle_outcomes_total{job=~"$job",outcome!~"succeeded|released|expired"}[$__rate_interval]))`, "{{outcome}}"},
			}},
			{"Oldest work that could be handed out", "waggle pool list", "s", []query{
				{`max by (pool) (waggle_oldest_grantable_task_seconds{job=~"$job"})`, "{{pool}}"},
			}},
			{"Wait from due to grant", "waggle explain source ID", "s", quantiles("waggle_queue_wait_seconds", dispatchers, "pool")},
			{"Tasks that wait", "waggle source get ID has the rate, and when it is done", "short", []query{
				{`max by (state) (waggle_tasks{job=~"$job",state=~"scheduled|ready|leased"})`, "{{state}}"},
			}},
			{"Work in hand", "waggle lease list", "s", []query{
				{`max by (pool) (waggle_oldest_lease_seconds{job=~"$job"})`, "oldest lease of {{pool}}"},
			}},
			{"Dispatchers and collectors", "waggle owner, waggle collector list", "short", []query{
				{`sum(up{job=~"$job",job!~".*collectors"})`, "dispatchers"},
				{`max(waggle_collectors{job=~"$job"})`, "collectors"},
			}},
		}},
		{"sources", "Waggle: sources", []panel{
			{"Sources by health", "waggle source list --health HEALTH", "short", []query{
				{`max by (health) (waggle_sources{job=~"$job"})`, "{{health}}"},
			}},
			{"Sources that give nothing", "no pages (pages_fail), no entries (empty), or nothing new for much longer than usual. waggle source list --health quiet", "short", []query{
				{`max by (health) (waggle_sources{job=~"$job",health=~"quiet|empty|pages_fail"})`, "{{health}}"},
			}},
			{"Sources that need a hand", "waggle status", "short", []query{found("never|stuck|moved|dead|failing|backed_off|late")}},
			{"Dead tasks", "waggle task list --all --state dead", "short", []query{
				{`max(waggle_tasks{job=~"$job",state="dead"})`, "dead"},
			}},
			{"Pages", "by pool", "reqps", []query{
				{`sum by (pool) (rate(waggle_pages_total{job=~"$job"}[$__rate_interval]))`, "{{pool}}"},
			}},
			{"Leases", "", "ops", []query{
				{`max(rate(waggle_leases_granted_total{job=~"$job"}[$__rate_interval]))`, "granted"},
				{`max(rate(waggle_leases_settled_total{job=~"$job"}[$__rate_interval]))`, "reported"},
				{`max(rate(waggle_leases_expired_total{job=~"$job"}[$__rate_interval]))`, "expired"},
			}},
		}},
		{"hosts", "Waggle: hosts", []panel{
			{"Fetch time", "waggle queue list has it by host", "s", quantiles("waggle_fetch_duration_seconds", dispatchers, "pool")},
			{"Refusals by hosts", "waggle hold list --blocks", "reqps", []query{
				{`sum by (outcome) (rate(waggle_outcomes_total{job=~"$job",outcome=~"throttled|forbidden|robots_denied|server_error|timeout|dns|connect|tls"}[$__rate_interval]))`, "{{outcome}}"},
			}},
			{"Blocked hosts", "waggle hold list --blocks", "short", []query{
				{`max(waggle_blocked_queues{job=~"$job"})`, "blocked"},
				{`max(waggle_queues{job=~"$job"})`, "with tasks or a gate"},
			}},
			{"Holds", "waggle hold list", "short", []query{
				{`max by (target) (waggle_holds{job=~"$job"})`, "{{target}}"},
			}},
			{"Oldest hold without an end", "waggle hold list", "s", []query{
				{`max(waggle_oldest_hold_seconds{job=~"$job"})`, "age"},
			}},
			{"Bytes", "waggle queue get HOST has it by host", "Bps", []query{
				{`sum by (pool) (rate(waggle_page_bytes_total{job=~"$job"}[$__rate_interval]))`, "{{pool}}"},
			}},
		}},
		{"dispatchers", "Waggle: dispatchers", []panel{
			{"Owner and standby", "waggle owner", "short", []query{
				{`waggle_owner{job=~"$job"}`, "{{instance}} owns"},
				{`max by (state) (waggle_owner_standby{job=~"$job"})`, "shards with standby {{state}}"},
			}},
			{"Time without an owner", "in the time before; waggle owner", "s", []query{
				{`max(increase(waggle_ownerless_seconds_total{job=~"$job"}[$__rate_interval]))`, "without"},
			}},
			{"Takeovers", "waggle owner", "short", []query{
				{`sum by (kind) (waggle_owner_takeovers_total{job=~"$job"})`, "{{kind}}"},
			}},
			{"Calls", "waggle stats", "reqps", []query{
				{`sum by (rpc_method) (rate(rpc_server_call_duration_seconds_count{job=~"$job"}[$__rate_interval]))`, "{{rpc_method}}"},
			}},
			{"Calls that fail", "waggle stats", "reqps", []query{
				{`sum by (rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count{job=~"$job",rpc_response_status_code!="OK"}[$__rate_interval])) or vector(0)`, "{{rpc_response_status_code}}"},
			}},
			{"Time of a call", "", "s", quantiles("rpc_server_call_duration_seconds", dispatchers, "rpc_method")},
			{"Calls that wait for work", "waggle stats", "short", []query{
				{`waggle_parked_fetches{job=~"$job"}`, "fetches of {{instance}}"},
				{`waggle_heartbeat_streams{job=~"$job"}`, "streams of {{instance}}"},
			}},
			{"Refused calls", "waggle stats", "reqps", []query{
				{`sum by (class) (rate(waggle_shed_calls_total{job=~"$job"}[$__rate_interval]))`, "{{class}}"},
			}},
			{"Certificates end", "waggle status", "s", []query{
				{`min by (instance, use) (waggle_certificate_expiry_timestamp_seconds{job=~"$job"}) - time()`, "{{use}} of {{instance}}"},
			}},
			{"Builds", "waggle version", "short", []query{
				{`count by (version, revision) (waggle_build_info{job=~"$job"})`, "{{version}} {{revision}}"},
			}},
			{"Clock steps", "waggle status", "short", []query{
				{`sum(increase(waggle_clock_steps_total{job=~"$job"}[$__rate_interval]))`, "steps"},
			}},
			{"Notices", "posts of serve --notify", "short", []query{
				{`sum by (result) (increase(waggle_notices_total{job=~"$job"}[$__rate_interval])) or vector(0)`, "{{result}}"},
			}},
		}},
		{"collectors", "Waggle: collectors", []panel{
			{"Sick collectors", "waggle collector list", "short", []query{found("collector|deaf|fetches_fail|gone|handler|hung|no_collector|released")}},
			work,
			{"Slots", "waggle collector list --state active", "short", []query{
				{`sum(waggle_collector_slots{job=~"` + collectors + `"})`, "slots"},
				{`sum(waggle_collector_busy_slots{job=~"` + collectors + `"})`, "busy"},
				{`sum(waggle_collector_leases{job=~"` + collectors + `"})`, "leases"},
			}},
			{"Tasks", "", "reqps", []query{
				{`sum by (outcome) (rate(waggle_collector_tasks_total{job=~"` + collectors + `"}[$__rate_interval]))`, "{{outcome}}"},
			}},
			{"Time of a task", "waggle lease list --output json has what takes long now", "s", quantiles("waggle_collector_handler_duration_seconds", collectors, "job")},
			{"Lost leases", "waggle lease list", "short", []query{
				{`sum by (reason) (increase(waggle_collector_lost_leases_total{job=~"` + collectors + `"}[$__rate_interval]))`, "{{reason}}"},
			}},
			{"Connected, held", "1 is yes. waggle collector list", "short", []query{
				{`min(waggle_collector_connected{job=~"` + collectors + `"})`, "all are connected"},
				{`max(waggle_collector_held{job=~"` + collectors + `"})`, "one is held"},
			}},
			{"Since the last answer", "waggle collector list", "s", []query{
				{`max(time() - waggle_collector_last_answer_timestamp_seconds{job=~"` + collectors + `"})`, "longest"},
			}},
			{"Unsent reports", "", "short", []query{
				{`sum(waggle_collector_unsent_reports{job=~"` + collectors + `"})`, "reports"},
			}},
			{"Bytes of pages", "", "Bps", []query{
				{`sum(rate(waggle_collector_page_bytes_total{job=~"` + collectors + `"}[$__rate_interval]))`, "bytes"},
			}},
		}},
		{"store", "Waggle: store", []panel{
			{"Room", "waggle stats", "bytes", []query{
				{`max(waggle_store_used_bytes{job=~"$job"})`, "used"},
				{`max(waggle_store_limit_bytes{job=~"$job"})`, "limit (0: none)"},
			}},
			{"Full", "1: submits are refused. waggle stats", "short", []query{
				{`max(waggle_store_full{job=~"$job"})`, "full"},
				{`min(waggle_store_up{job=~"$job"})`, "answers"},
			}},
			{"Time of a change", "waggle stats", "s", quantiles("waggle_store_group_duration_seconds", dispatchers, "job")},
			{"Size of a change", "", "bytes", quantiles("waggle_store_group_size_bytes", dispatchers, "job")},
			{"Oldest change on its way", "", "s", []query{
				{`max(waggle_store_group_lag_seconds{job=~"$job"})`, "age"},
			}},
			{"Tasks by state", "waggle stats", "short", []query{
				{`max by (state) (waggle_tasks{job=~"$job"})`, "{{state}}"},
			}},
			{"Time of a load", "what a takeover without a standby takes. waggle owner", "s", []query{
				{`max(waggle_store_load_seconds{job=~"$job"})`, "last load"},
			}},
			{"Lost with an owner", "changes of tasks; waggle stats", "short", []query{
				{`sum(increase(waggle_owner_lost_tasks_total{job=~"$job"}[$__rate_interval]))`, "lost"},
			}},
		}},
	}
}

// build makes the dashboard that Grafana reads.
func (b board) build() (dashboard.Dashboard, error) {
	source := common.DataSourceRef{Type: ref("prometheus"), Uid: ref("${datasource}")}
	jobs := "label_values(waggle_build_info, job)"
	out := dashboard.NewDashboardBuilder(b.title).Uid("waggle-"+b.name).Tags([]string{"waggle"}).Refresh("30s").Time("now-6h", "now").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Waggle").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"waggle"}).KeepTime(true).IncludeVars(true).AsDropdown(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Type("prometheus").Label("Prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("job").Label("Store").Datasource(source).Query(dashboard.StringOrMap{String: &jobs}).
			Refresh(dashboard.VariableRefreshOnDashboardLoad).Regex("/^(?!.*collectors$).*/"))
	for _, p := range b.panels {
		graph := timeseries.NewPanelBuilder().Title(p.title).Description(p.note).Unit(p.unit).Min(0).Datasource(source).Span(12).Height(8)
		for i, q := range p.queries {
			graph.WithTarget(grafana.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(q.legend))
		}
		out.WithPanel(graph)
	}
	return out.Build()
}

func ref[T any](v T) *T { return &v }

// The files are what the table says, and Grafana's own types read them strictly. `go test -run Dashboards -write .` writes them.
func TestDashboards(t *testing.T) {
	t.Parallel()
	known := catalogue(t)
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(grafana.VariantConfig())
	names := make(map[string]bool)
	for _, b := range boards() {
		names[b.name+".json"] = true
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			built, err := b.build()
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.MarshalIndent(built, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("..", "grafana", b.name+".json")
			if *write {
				if err := os.WriteFile(path, append(want, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bytes.TrimSpace(text), want) {
				t.Errorf("%s is not what the table says: go test -run Dashboards -write .", path)
			}
			var read dashboard.Dashboard
			// Its error is never nil, but may be an empty list.
			if err := read.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
				t.Errorf("%s: %v", path, err)
			}
			for _, p := range b.panels {
				for _, q := range p.queries {
					known.check(t, p.title, strings.NewReplacer("$__rate_interval", "5m", "$job", "waggle").Replace(q.expr), q.legend)
				}
			}
		})
	}
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !names[filepath.Base(file)] {
			t.Errorf("%s is not in the table", file)
		}
	}
	if len(names) != 6 {
		t.Errorf("there are %d dashboards, want 6", len(names))
	}
}
