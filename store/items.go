package store

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/tidwall/btree"
	"github.com/waggle-crawl/waggle/store/machine"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// ErrItems is wrapped by errors about items that cannot be read.
var ErrItems = errors.New("the items cannot be read")

