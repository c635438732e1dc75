package operate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// A certificate is found two weeks before its end.
func TestOperator_Findings_certificate(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		o := operate.New(w.D[0])
		ends := time.Now().Add(15 * 24 * time.Hour)
		o.ShowCertificates(func() []operate.Certificate {
			return []operate.Certificate{{Use: "server", File: "tls.crt", Ends: ends}}
		})
		if f, ok := findings(t, o)["CERTIFICATE"]; ok {
			t.Errorf("15 days before: %+v", f)
		}
		ends = ends.Add(-2 * 24 * time.Hour)
		if f := findings(t, o)["CERTIFICATE"]; !strings.Contains(f.Message, "server certificate ends in") || f.Names[0] != "tls.crt" {
			t.Errorf("13 days before: %+v", f)
		}
		ends = time.Now().Add(-time.Hour)
		if f := findings(t, o)["CERTIFICATE"]; !strings.Contains(f.Message, "has ended") {
			t.Errorf("afterwards: %+v", f)
		}
	})
}

// What keeps the store is found when it is nearly full, by its limit; a disk with much room is not, whatever its share.
func TestOperator_Findings_room(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		stats dispatch.StoreStats
		text  string // empty: no finding
	}{
		"a Redis with room":       {dispatch.StoreStats{UsedBytes: 84 << 20, LimitBytes: 100 << 20}, ""},
		"a Redis that is filling": {dispatch.StoreStats{UsedBytes: 90 << 20, LimitBytes: 100 << 20}, "redis uses 90 %: 10 MiB are left"},
		"a Redis without a limit": {dispatch.StoreStats{UsedBytes: 90 << 20}, ""},
		"a large disk":            {dispatch.StoreStats{UsedBytes: 1 << 30, DiskBytes: 1000 << 30, FreeBytes: 100 << 30}, ""},
		"a disk that is filling":  {dispatch.StoreStats{UsedBytes: 1 << 30, DiskBytes: 100 << 30, FreeBytes: 10 << 30}, "full to 90 %"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				d, err := engine.New(engine.Config{ID: "d", Store: measured{w.Store, one.stats}})
				if err != nil {
					t.Fatal(err)
				}
				f, ok := findings(t, operate.New(d))["ROOM"]
				if ok != (one.text != "") || !strings.Contains(f.Message, one.text) {
					t.Errorf("found %+v (%t)", f, ok)
				}
			})
		})
	}
}

// measured is a store that takes and has left what it is told.
type measured struct {
	dispatch.Store
	stats dispatch.StoreStats
}

// Stats implements [dispatch.Store].
func (m measured) Stats(context.Context) (dispatch.StoreStats, error) { return m.stats, nil }
