package server

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// buildInfo shows what runs here.
func buildInfo(version string) prometheus.Collector {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "waggle_build_info", Help: "1, with the version of the dispatcher, of Go, and the revision of its source.",
		ConstLabels: prometheus.Labels{"version": cmp.Or(version, "unknown"), "goversion": runtime.Version(), "revision": cmp.Or(revision, "unknown")},
	})
	info.Set(1)
	return info
}

// certificates are those of the server whose end matters: its own, and of the authorities of clients the first to end. The dispatchers of
// a store know each other by its secret, and use the same.
func (s *Server) certificates() []operate.Certificate {
	if s.certs == nil {
		return nil
	}
	own, authorities := s.certs.Ends()
	out := []operate.Certificate{{Use: "server", File: s.cfg.TLSCertFile, Ends: own}}
	if !authorities.IsZero() {
		out = append(out, operate.Certificate{Use: "client_ca", File: s.cfg.TLSClientCAFile, Ends: authorities})
	}
	return out
}

// certificateCollector shows when certificates end. Without TLS it shows nothing.
type certificateCollector struct {
	desc *prometheus.Desc
	of   func() []operate.Certificate
}

func newCertificateCollector(of func() []operate.Certificate) *certificateCollector {
	return &certificateCollector{desc: prometheus.NewDesc("waggle_certificate_expiry_timestamp_seconds",
		"When a certificate ends, by its use: server, or client_ca, the first of the authorities of clients to end.", []string{"use"}, nil), of: of}
}

// Describe implements [prometheus.Collector].
func (c *certificateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *certificateCollector) Collect(ch chan<- prometheus.Metric) {
	for _, one := range c.of() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(one.Ends.Unix()), one.Use)
	}
}
