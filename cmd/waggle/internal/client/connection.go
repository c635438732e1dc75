package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/contextfile"
	"github.com/waggle-crawl/waggle/collector"
)

const (
	// DefaultServer is the dispatcher to ask if no other is named.
	DefaultServer = "127.0.0.1:7070"

	// tokenVariable has a token. No flag has: other users of the machine see the arguments of commands, and shells keep them.
	tokenVariable = cli.EnvPrefix + "TOKEN"

	// maxTokenInput bounds what is read of a token on standard input, in bytes.
	maxTokenInput = 64 << 10
)

// Connection is how a command reaches dispatchers, and proves who it is. A flag counts before a context that --context names,
// that before variables, and those before the current context.
type Connection struct {
	servers   []string
	context   string
	tls       bool
	files     collector.TLS
	tokenFile string
	token     string
	tokenFrom string // how errors call the source of the token
}

// Register adds the flags, and --context.
func (n *Connection) Register(flags *pflag.FlagSet, serverUsage string) {
	n.RegisterSettings(flags, serverUsage)
	flags.Lookup("token-file").Usage += "; -: standard input; without it, the token in " + tokenVariable
	flags.StringVar(&n.context, "context", "", "`name` of the context to use (default the current one, unless --server is given)")
}

// RegisterSettings adds the flags that a context can keep.
func (n *Connection) RegisterSettings(flags *pflag.FlagSet, serverUsage string) {
	flags.StringSliceVar(&n.servers, "server", []string{DefaultServer}, serverUsage)
	flags.BoolVar(&n.tls, "tls", false, "connect by TLS; each flag below turns it on but --token-file")
	flags.StringVar(&n.files.CAFile, "tls-ca", "", "PEM `file` with the authorities to trust, instead of the system's")
	flags.StringVar(&n.files.CertFile, "client-cert", "", "PEM `file` with the certificate to show")
	flags.StringVar(&n.files.KeyFile, "client-key", "", "PEM `file` with its key")
	flags.StringVar(&n.files.ServerName, "tls-server-name", "", "`name` that the dispatcher's certificate must have, instead of the host's")
	flags.StringVar(&n.tokenFile, "token-file", "", "`file` with the token to send")
}

// Resolve settles what flags and variables of cmd leave open: what the context sets, and the token of WAGGLE_TOKEN or of
// standard input.
func (n *Connection) Resolve(cmd *cobra.Command, c cli.Console) error {
	if err := n.takeTokenVariable(cmd.Flags(), c); err != nil {
		return err
	}
	if err := n.takeContext(cmd.Flags(), c); err != nil {
		return err
	}
	if n.tokenFile == "-" {
		if err := n.takeInput(cmd); err != nil {
			return err
		}
	}
	return n.check()
}

func (n *Connection) takeTokenVariable(flags *pflag.FlagSet, c cli.Console) error {
	token, _ := c.Env(tokenVariable)
	if file, _ := c.Env(tokenVariable + "_FILE"); token != "" && file != "" && file == n.tokenFile {
		return cli.Usagef("%s and %s_FILE: set one of them", tokenVariable, tokenVariable)
	}
	if token != "" && !flags.Changed("token-file") {
		n.token, n.tokenFrom = token, tokenVariable
	}
	return nil
}

// takeContext takes what is not set from the context that is named. If none is named, it is the current one, whose credentials
// are for its server alone.
func (n *Connection) takeContext(flags *pflag.FlagSet, c cli.Console) error {
	if n.context == "" && flags.Changed("server") {
		return nil
	}
	path, err := contextfile.Path(c)
	switch {
	case err != nil && n.context == "":
		return nil
	case err != nil:
		return fmt.Errorf("--context %s: %w", n.context, err)
	}
	file, err := contextfile.Read(path)
	if err != nil {
		return err
	}
	name := cmp.Or(n.context, file.Current)
	if name == "" {
		return nil
	}
	from, err := file.Get(name)
	if err != nil {
		return err
	}
	// A context that a flag names counts before variables: its credentials are for its server.
	named := flags.Changed("context") && !cli.IsFromEnv(flags, "context")
	given := func(flag string) bool { return flags.Changed(flag) && (!named || !cli.IsFromEnv(flags, flag)) }
	if !given("server") && len(from.Server) > 0 {
		n.servers = from.Server
	}
	if !given("tls") {
		n.tls = from.TLS
	}
	other := given("client-cert") // a certificate that is given counts, not the token of the context
	if !given("token-file") && !other && (n.token == "" || named && from.TokenFile != "") {
		n.tokenFile, n.token = from.TokenFile, ""
	}
	for flag, setting := range map[string]struct {
		into  *string
		value string
	}{
		"tls-ca": {&n.files.CAFile, from.TLSCA}, "client-cert": {&n.files.CertFile, from.ClientCert},
		"client-key": {&n.files.KeyFile, from.ClientKey}, "tls-server-name": {&n.files.ServerName, from.TLSServerName},
	} {
		if !given(flag) {
			*setting.into = setting.value
		}
	}
	return nil
}

// takeInput reads the token from standard input, which has nothing else then.
func (n *Connection) takeInput(cmd *cobra.Command) error {
	in, err := cli.OpenInput(cmd.Context(), "-", cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	cmd.SetIn(cli.UsedInput("--token-file -"))
	text, err := io.ReadAll(io.LimitReader(in, maxTokenInput))
	if err != nil {
		return fmt.Errorf("--token-file -: %w", err)
	}
	n.tokenFile, n.token, n.tokenFrom = "", strings.TrimSpace(string(text)), "--token-file -"
	if n.token == "" {
		return errors.New("--token-file -: standard input is empty")
	}
	return nil
}

// check refuses what makes no sense together.
func (n *Connection) check() error {
	if err := CheckServers(n.servers); err != nil {
		return err
	}
	cfg := collector.Config{ID: "command"}
	n.Fill(&cfg)
	if err := cfg.Validate(); err != nil {
		return cli.Usagef("%w", n.FlagNames(err))
	}
	return nil
}

// Fill gives a configuration what it needs to connect.
func (n *Connection) Fill(cfg *collector.Config) {
	cfg.Targets, cfg.Token, cfg.TokenFile = n.servers, n.token, n.tokenFile
	if n.overTLS() {
		cfg.TLS = &n.files
	}
}

func (n *Connection) overTLS() bool { return n.tls || n.files != collector.TLS{} }

// Explained adds to an error of a call what its explanation needs.
func (n *Connection) Explained(err error) *Error {
	return &Error{
		Err: err, servers: n.servers, tls: n.overTLS(),
		hasCredential: n.token != "" || n.tokenFile != "" || n.files.CertFile != "",
	}
}

// FlagNames writes flags where an error names fields of the configuration.
func (n *Connection) FlagNames(err error) error {
	return cli.Rename(err, "want TLS", "want --tls or --tls-ca", "field Targets: ", "--server ",
		"field TLS.CAFile", "--tls-ca", "field TLS.CertFile", "--client-cert", "TLS.KeyFile", "--client-key",
		"field TokenFile", "--token-file", "field Token", n.tokenFrom)
}

// Context is what a context keeps of it. --token-file - is none of that.
func (n *Connection) Context(absolute func(path string) (string, error)) (contextfile.Context, error) {
	if n.tokenFile == "-" {
		return contextfile.Context{}, cli.Usagef("--token-file -: a context keeps the path of a token, not a token")
	}
	if err := n.check(); err != nil {
		return contextfile.Context{}, err
	}
	kept := contextfile.Context{
		Server: n.servers, TLS: n.tls, TLSCA: n.files.CAFile, ClientCert: n.files.CertFile, ClientKey: n.files.KeyFile,
		TLSServerName: n.files.ServerName, TokenFile: n.tokenFile,
	}
	for i, server := range kept.Server {
		path, socket := strings.CutPrefix(server, "unix:")
		if !socket || strings.HasPrefix(path, "/") {
			continue
		}
		path, err := absolute(path)
		if err != nil {
			return contextfile.Context{}, err
		}
		kept.Server[i] = "unix:" + path
	}
	for _, path := range []*string{&kept.TLSCA, &kept.ClientCert, &kept.ClientKey, &kept.TokenFile} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = absolute(*path); err != nil {
			return contextfile.Context{}, err
		}
	}
	return kept, nil
}

// CheckServers refuses what can be no dispatcher's address, before anything waits for an answer from it. One alone may
// also be a name that gRPC resolves, such as unix:/path or dns:///host:port.
func CheckServers(servers []string) error {
	if len(servers) == 0 {
		return cli.Usagef("--server is empty; want host:port")
	}
	for i, server := range servers {
		server = strings.TrimSpace(server)
		servers[i] = server
		scheme, _, found := strings.Cut(server, ":")
		if len(servers) == 1 && found && slices.Contains([]string{"unix", "unix-abstract", "dns", "passthrough", "ipv4", "ipv6"}, scheme) {
			continue
		}
		host, port, err := net.SplitHostPort(server)
		if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || number == 0 || strings.Contains(host, "/") {
			return cli.Usagef("--server %s: want host:port, as %s", cmp.Or(server, `""`), DefaultServer)
		}
	}
	return nil
}
