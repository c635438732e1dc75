package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// heapFloor is how much a dispatcher or a collector allocates, at least, from one collection of garbage to the next.
const heapFloor = 32 << 20

// WithHeapFloor runs f with memory held that is never touched, and so costs none: Go's collector, which runs when the heap
// has doubled, takes it for a part of the heap. A dispatcher on Redis holds few MiB and makes garbage at up to 200 MB a
// second; without the floor a fifth of its processor time goes into collections. A web collector is much the same. The cost
// is up to heapFloor of memory. If GOGC or GOMEMLIMIT is set, the operator has decided otherwise.
func WithHeapFloor(env func(string) (string, bool), f func() error) error {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := env(name); set {
			return f()
		}
	}
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return f()
}

// VersionLine is what the command and --version print.
func VersionLine() string {
	return fmt.Sprintf("waggle %s %s %s/%s", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version is that of the module as it was built: a tag, or one that Go makes of the commit; "devel" if it knows neither.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// Hostname is the machine's name as an id may hold it.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	return regexp.MustCompile(`[^a-z0-9._-]`).ReplaceAllString(strings.ToLower(fmt.Sprintf("%.100s", name)), "-")
}

// EnvPrefix begins the names of the variables that set flags.
const EnvPrefix = "WAGGLE_"

// FromEnv lets the environment set each of the flags that no argument sets: --drain-timeout by WAGGLE_DRAIN_TIMEOUT. Flags
// whose values belong to one call only are not in the set.
func FromEnv(cmd *cobra.Command, c Console, flags *pflag.FlagSet) {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			f.Usage += " [" + variableOf(f) + "]"
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	before := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			if err := before(cmd, args); err != nil {
				return err
			}
		}
		for _, name := range names {
			variable := variableOf(cmd.Flags().Lookup(name))
			value, ok := c.Env(variable)
			if !ok || value == "" || cmd.Flags().Changed(name) {
				continue
			}
			if err := cmd.Flags().Set(name, value); err != nil {
				return FlagError(err, variable)
			}
			if err := cmd.Flags().SetAnnotation(name, fromEnv, nil); err != nil {
				return err
			}
		}
		return nil
	}
}

// fromEnv is the annotation of flags that a variable has set.
const fromEnv = "waggle_from_env"

// IsFromEnv reports whether a variable has set a flag.
func IsFromEnv(flags *pflag.FlagSet, name string) bool {
	_, set := flags.Lookup(name).Annotations[fromEnv]
	return set
}

// ownEnv is the annotation of flags with a variable of their own.
const ownEnv = "waggle_env"

// EnvVar gives a flag a variable of its own, for one that means something else in another command of the same environment.
func EnvVar(flags *pflag.FlagSet, name, variable string) {
	if err := flags.SetAnnotation(name, ownEnv, []string{variable}); err != nil {
		panic(err) // there is no such flag
	}
}

// variableOf is the variable that sets a flag.
func variableOf(f *pflag.Flag) string {
	if own := f.Annotations[ownEnv]; len(own) > 0 {
		return own[0]
	}
	return envName(f.Name)
}

func envName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Console is what a command gets of the process it runs in.
type Console struct {
	// Env looks up a variable of the environment.
	Env func(name string) (value string, ok bool)

	// ConfigDir is the user's directory of configurations; nil: there is none.
	ConfigDir func() (string, error)

	// TracerProvider makes the spans of what the command does; nil: there are none.
	TracerProvider trace.TracerProvider
}

// LogOptions are how a long-running command logs.
type LogOptions struct {
	level string
	// Format is auto, console or json.
	Format string
}

// Register adds the flags.
func (l *LogOptions) Register(flags *pflag.FlagSet) {
	ChoiceVar(flags, &l.level, "log-level", "", "info", "least `level` to log: debug, info, warn, error", "debug", "info", "warn", "error")
	ChoiceVar(flags, &l.Format, "log-format", "", "auto", "`format`: console for people, json for programs; auto: console on a terminal", "auto", "console", "json")
}

// Logger writes to out. From now on it also gets what the process's standard logger gets, as warnings: net/http reports
// by that what happens to connections.
func (l *LogOptions) Logger(out io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(l.level)
	if err != nil {
		return nil, err
	}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime, config.EncodeDuration = zapcore.RFC3339NanoTimeEncoder, zapcore.SecondsDurationEncoder
	encoder := zapcore.NewJSONEncoder(config)
	if l.Format == "console" || l.Format == "auto" && human.IsTerminal(out) {
		config = zap.NewDevelopmentEncoderConfig()
		config.EncodeTime, config.EncodeDuration = zapcore.TimeEncoderOfLayout("15:04:05.000"), zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	}
	log := zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), level))
	_, err = zap.RedirectStdLogAt(log, zap.WarnLevel)
	return log, err
}
