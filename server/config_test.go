package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	var cfg server.Config
	if err := cfg.Validate(); err != nil {
		t.Fatalf("the zero value: %v", err)
	}
	if cfg.Listen != "127.0.0.1:7070" || cfg.HTTP != "127.0.0.1:7080" || cfg.MaxReceiveBytes != 4<<20 ||
		cfg.KeepaliveMinTime != 5*time.Second || cfg.MaxConnectionAge != 30*time.Minute ||
		cfg.MaxConnectionAgeGrace <= bounds.MaxWait || cfg.DrainTimeout != 20*time.Second {
		t.Errorf("defaults %+v", cfg)
	}
	if bad := (server.Config{Listen: "127.0.0.1"}); bad.Validate() == nil || !strings.Contains(bad.Validate().Error(), "Listen ") {
		t.Errorf("an address without a port: %v", bad.Validate())
	}
	for field, bad := range map[string]server.Config{
		"Listen":                 {Listen: server.Off},
		"TLSKeyFile":             {TLSCertFile: "cert.pem"},
		"MaxReceiveBytes":        {MaxReceiveBytes: 1},
		"MaxFetches":             {MaxFetches: -1},
		"MaxFetchesPerCollector": {MaxFetchesPerCollector: -1},
		"MaxSubmits":             {MaxSubmits: -1},
		"Busy":                   {Busy: -1},
		"ReadsPerSecond":         {ReadsPerSecond: -1},
		"KeepaliveMinTime":       {KeepaliveMinTime: time.Millisecond},
		"HTTP":                   {HTTP: "127.0.0.1:65536"},
		"MaxConnectionAgeGrace":  {MaxConnectionAgeGrace: bounds.MaxWait},
		"DrainTimeout":           {DrainTimeout: -1},
		"HealthInterval":         {HealthInterval: time.Hour},
		"StatsInterval":          {StatsInterval: -1},
		"LogBurst":               {LogBurst: -1},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), field+" ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNew_errors(t *testing.T) {
	t.Parallel()
	d, err := engine.New(engine.Config{Store: newStore(t), ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(server.Config{Busy: -1}, operate.New(d), nil); err == nil {
		t.Error("bad config: no error")
	}
	if _, err := server.New(server.Config{TLSCertFile: "none.pem", TLSKeyFile: "none.pem"}, operate.New(d), nil); err == nil || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("no certificate: %v", err)
	}
	shared := server.NewMetrics()
	first, err := server.New(server.Config{Metrics: shared}, operate.New(d), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	defer func() {
		if err := first.RunOn(ended, bufconn.Listen(1), nil); err != nil {
			t.Errorf("a server that is not to run: %v", err)
		}
	}()
	if _, err := server.New(server.Config{Metrics: shared}, operate.New(d), nil); err == nil || !strings.Contains(err.Error(), "Metrics") {
		t.Errorf("metrics of another server: %v", err)
	}
}
