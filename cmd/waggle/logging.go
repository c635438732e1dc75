package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// logOptions are how a long-running command logs.
type logOptions struct{ level, format string }

func (l *logOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "least `level` to log: debug, info, warn, error")
	flags.StringVar(&l.format, "log-format", "auto", "`format`: console for people, json for programs; auto: console on a terminal")
}

// logger writes to out.
func (l *logOptions) logger(out io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(l.level)
	if err != nil {
		return nil, usagef("--log-level %q: say debug, info, warn or error", l.level)
	}
	var encoder zapcore.Encoder
	switch {
	case l.format == "console", l.format == "auto" && isTerminal(out):
		config := zap.NewDevelopmentEncoderConfig()
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	case l.format == "json", l.format == "auto":
		config := zap.NewProductionEncoderConfig()
		config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		config.EncodeDuration = zapcore.SecondsDurationEncoder
		encoder = zapcore.NewJSONEncoder(config)
	default:
		return nil, usagef("--log-format %q: say auto, console or json", l.format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), level)), nil
}

// isTerminal reports whether people read what is written to out as it comes.
func isTerminal(out any) bool {
	file, ok := out.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// hostname is the machine's name as an id may hold it.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	id := []byte(fmt.Sprintf("%.100s", name))
	for i, b := range id {
		switch {
		case b >= 'A' && b <= 'Z':
			id[i] = b + 'a' - 'A'
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9', b == '.', b == '_', b == '-':
		default:
			id[i] = '-'
		}
	}
	return string(id)
}
