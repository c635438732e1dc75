package collect

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// sinkOptions are the flags that say where a collector keeps its pages.
type sinkOptions struct {
	out      string
	warc     string
	warcSize int64
}

func (o *sinkOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.out, "out", "", "`directory` for the pages, as lines of JSON with bodies beside them; without it and --warc they are only followed")
	flags.StringVar(&o.warc, "warc", "", "`directory` for the pages, as WARC/1.1 files")
	flags.Int64Var(&o.warcSize, "warc-size", 0, "`bytes` from which a WARC file gets no more pages (default 1 GiB)")
}

// open gives the handler a sink, if one is wanted. The sink is to be closed when the collector has stopped.
func (o *sinkOptions) open(collectorID string, handler *web.Config) (io.Closer, error) {
	switch {
	case o.out != "" && o.warc != "":
		return nil, cli.Usagef("--out %q and --warc %q: say one of them", o.out, o.warc)
	case o.out != "":
		sink, err := web.NewDirSink(o.out, collectorID)
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		handler.Sink = sink
		return sink, nil
	case o.warc != "":
		cfg := warc.Config{
			Dir: o.warc, CollectorID: collectorID, MaxFileBytes: o.warcSize, Software: "waggle " + cli.Version(), Operator: handler.Contact,
		}
		if err := cfg.Validate(); err != nil {
			return nil, cli.Usagef("--warc: %w", fieldsAsFlags(err))
		}
		sink, err := warc.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("--warc: %w", err)
		}
		handler.Sink, handler.Exchanges = sink, true
		return sink, nil
	}
	return io.NopCloser(nil), nil
}

// closeSink closes a sink at the end of a command that ends with err.
func closeSink(sink io.Closer, err *error) {
	if closeErr := sink.Close(); closeErr != nil {
		*err = errors.Join(*err, fmt.Errorf("close the sink: %w", closeErr))
	}
}
