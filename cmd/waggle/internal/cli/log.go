package cli

import (
	"io"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// LogOptions are how a long-running command logs.
type LogOptions struct{ level, Format string }

// Register adds the flags.
func (l *LogOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "least `level` to log: debug, info, warn, error")
	flags.StringVar(&l.Format, "log-format", "auto", "`format`: console for people, json for programs; auto: console on a terminal")
}

// Logger writes to out.
func (l *LogOptions) Logger(out io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(l.level)
	if err != nil {
		return nil, Usagef("--log-level %q: say debug, info, warn or error", l.level)
	}
	var encoder zapcore.Encoder
	switch {
	case l.Format == "console", l.Format == "auto" && human.IsTerminal(out):
		config := zap.NewDevelopmentEncoderConfig()
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	case l.Format == "json", l.Format == "auto":
		config := zap.NewProductionEncoderConfig()
		config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		config.EncodeDuration = zapcore.SecondsDurationEncoder
		encoder = zapcore.NewJSONEncoder(config)
	default:
		return nil, Usagef("--log-format %q: say auto, console or json", l.Format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), level)), nil
}
