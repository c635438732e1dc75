package server

import (
	"context"
	"fmt"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
)

// callLogger lets the logging interceptor write to a zap logger, no more than
// burst lines in a second and level before only each hundredth is kept: a store
// that is away fails every call, and the log should tell so without filling the
// disk.
func callLogger(log *zap.Logger, burst int) logging.Logger {
	log = log.WithOptions(zap.WithCaller(false), zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, burst, 100)
	}))
	return logging.LoggerFunc(func(_ context.Context, level logging.Level, msg string, fields ...any) {
		entry := log.Check(zapLevel(level), msg)
		if entry == nil {
			return
		}
		out := make([]zap.Field, 0, len(fields)/2)
		for i := 0; i+1 < len(fields); i += 2 {
			out = append(out, zap.Any(fmt.Sprint(fields[i]), fields[i+1]))
		}
		entry.Write(out...)
	})
}

func zapLevel(level logging.Level) zapcore.Level {
	switch level {
	case logging.LevelDebug:
		return zapcore.DebugLevel
	case logging.LevelInfo:
		return zapcore.InfoLevel
	case logging.LevelWarn:
		return zapcore.WarnLevel
	default:
		return zapcore.ErrorLevel
	}
}

// callLogOptions logs each call once, when it ends: at level error what is a
// fault of ours, as a warning what an operator may have to act on, as info what
// a client did wrong, and what succeeded as debug or info.
func callLogOptions(success bool) []logging.Option {
	return []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithLevels(func(code codes.Code) logging.Level { return callLevel(code, success) }),
		logging.WithDurationField(logging.DurationToDurationField),
		logging.WithDisableLoggingFields(logging.ComponentFieldKey, logging.MethodTypeFieldKey, logging.SystemTag[0]),
	}
}

func callLevel(code codes.Code, success bool) logging.Level {
	switch code {
	case codes.OK:
		if success {
			return logging.LevelInfo
		}
		return logging.LevelDebug
	case codes.Canceled, codes.DeadlineExceeded:
		return logging.LevelDebug
	case codes.Unavailable, codes.ResourceExhausted:
		return logging.LevelWarn
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	default:
		return logging.LevelInfo
	}
}
