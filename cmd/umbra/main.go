// Command umbra serves GPUs to virtual machines: QEMU attaches to its socket
// over vfio-user, and the guest's own driver finds the card.
//
// Each subcommand is in a file of its own. The command owns no state, and its
// goroutines have ended when it returns.
//
// umbra serve has two goroutines beside those of package serve: one handles SIGUSR1
// and SIGHUP, the other tells systemd the server's state.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the operation failed, or the server's current state does not allow it
	exitUsage  = 2 // an argument, or a file or socket that it names, is wrong
)

type commands struct {
	Serve   serveCmd    `cmd:"" help:"Serve virtual GPUs, or a whole card, on sockets that QEMU attaches to."`
	Status  statusCmd   `cmd:"" help:"Show what a running server serves, and to which clients."`
	Top     topCmd      `cmd:"" help:"Show what the guests of a running server do now."`
	GPU     gpuCmd      `cmd:"" name:"gpu" help:"List, add, change and remove virtual GPUs of a running server."`
	Regs    regsCmd     `cmd:"" help:"Print the register table with its policies, and the counts of a running server."`
	ROM     romCmd      `cmd:"" name:"rom" help:"Build and show VBIOS images."`
	Disasm  disasmCmd   `cmd:"" help:"Disassemble a program of the shader processors (sm_20), close to envydis."`
	Card    cardCmd     `cmd:"" help:"Show the cards of this machine."`
	VFIO    vfioUserCmd `cmd:"" name:"vfio-user" help:"Describe any vfio-user server, and test that it conforms to the protocol."`
	Bench   benchCmd    `cmd:"" help:"Measure Umbra on this machine."`
	Sched   schedCmd    `cmd:"" help:"Show, change and simulate how card time is shared."`
	Trace   traceCmd    `cmd:"" help:"Record what guests do, and read recordings."`
	Lab     labCmd      `cmd:"" help:"Run programs in guests that Umbra boots."`
	Config  configCmd   `cmd:"" help:"Save the configuration of a running server."`
	Reload  reloadCmd   `cmd:"" help:"Let a running server apply what changed in its configuration file."`
	Version versionCmd  `cmd:"" help:"Print the version."`

	ShowVersion versionFlag `name:"version" help:"Print the version."`

	CardWorker cardWorkerCmd `cmd:"" hidden:"" name:"card-worker" help:"Serve one guest's channels on a card of the host's NVIDIA driver. The server starts it."`
}

// output is where a subcommand writes its results and its messages.
type output struct {
	stdout, stderr io.Writer
	process        bool // this process is for the command alone, which may replace or confine it
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := doMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// doMain runs one command line until it is done or ctx ends, and returns the
// exit code.
func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exited := false
	parser := newParser(ctx, stdout, stderr, func(int) { exited = true }) // after --help
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	parsed, err := parser.Parse(args)
	if exited {
		return exitOK
	}
	if err != nil {
		return misused(parser, err, stderr)
	}
	err = parsed.Run()
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "umbra: interrupted before it was done")
		return exitFailed
	}
	if status := ended(0); errors.As(err, &status) {
		return int(status)
	}
	said := make(map[string]bool) // what is wrong with the card is wrong with each GPU
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !said[line] {
			fmt.Fprintf(stderr, "umbra: %s\n", line)
		}
		said[line] = true
	}
	usage, answer := new(config.Error), new(api.Error)
	if errors.As(err, &usage) || errors.As(err, &answer) && answer.Code == http.StatusBadRequest {
		return exitUsage
	}
	return exitFailed
}

// misused writes why a command line cannot be parsed, and where to read on.
func misused(parser *kong.Kong, err error, stderr io.Writer) int {
	at, path := parser.Model.Node, "umbra"
	if parse := new(kong.ParseError); errors.As(err, &parse) && parse.Context.Selected() != nil {
		at = parse.Context.Selected()
		path = at.FullPath()
	}
	if strings.HasPrefix(err.Error(), "expected one of ") { // the flag library names only five
		var names []string
		for _, c := range at.Children {
			if !c.Hidden {
				names = append(names, c.Name)
			}
		}
		err = fmt.Errorf("which command? There are %s %s", path, strings.Join(names, ", "))
	}
	if flag, ok := strings.CutPrefix(err.Error(), "unknown flag --"); ok && at.Name == "serve" {
		if meant, ok := config.FlagMeant(flag); ok { // its name in the configuration file
			err = fmt.Errorf("%w, did you mean \"--%s\"?", err, meant)
		}
	}
	if at.DefaultCmd != nil { // it takes these flags
		path = at.DefaultCmd.FullPath()
	}
	fmt.Fprintf(stderr, "umbra: %v\n%s --help says what is possible\n", err, path)
	return exitUsage
}

// newParser makes the parser of command lines.
func newParser(ctx context.Context, stdout, stderr io.Writer, exit func(int)) *kong.Kong {
	options := []kong.Option{
		kong.Name("umbra"),
		kong.Description("GPUs for virtual machines with unmodified drivers, over vfio-user."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(output{stdout, stderr, stdout == io.Writer(os.Stdout)}),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true}),
		kong.ValueFormatter(withDefault),
	}
	for _, v := range []any{time.Duration(0), config.Size(0), config.Percent(0), config.Counts(nil), aperture.Map(0), "", 0, uint64(0)} {
		options = append(options, kong.TypeMapper(reflect.TypeOf(v), kong.MapperFunc(valueFlag)))
	}
	parser := kong.Must(new(commands), options...)
	withExamples(parser.Model.Node)
	return parser
}

// badFile is the error of a file that the command line names: a wrong argument.
func badFile(name string, err error) error {
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err // config.Error names the file
	}
	return &config.Error{Where: name, Reason: err.Error()}
}

// valueFlag reads a number, size, time or list as in the configuration file.
func valueFlag(c *kong.DecodeContext, target reflect.Value) error {
	text, err := popValue(c)
	if err != nil {
		return err
	}
	return config.ParseFlag(target, text, c.Value.Tag.Get("validate"))
}

// belowZero matches values that the flag library takes for flags of one letter.
var belowZero = regexp.MustCompile(`^-[0-9]`)

// popValue takes the flag's value, the next argument. No flag is a digit.
func popValue(c *kong.DecodeContext) (text string, err error) {
	if t := c.Scan.Peek(); t.Type == kong.UntypedToken && belowZero.MatchString(t.String()) {
		return c.Scan.Pop().String(), nil
	}
	err = c.Scan.PopValueInto("a", &text)
	return text, err
}

// flagsGiven lists the flags of a command line.
func flagsGiven(parsed *kong.Context) (names []string) {
	for _, p := range parsed.Path {
		if p.Flag != nil {
			names = append(names, p.Flag.Name)
		}
	}
	return names
}

// withDefault adds to a flag's help its default, and what it accepts.
func withDefault(v *kong.Value) string {
	text, accepts := "", config.Accepts(v.Tag.Get("validate"))
	switch {
	case v.Default != "" && accepts != "" && accepts != v.Default:
		text = fmt.Sprintf(" (default: %s; %s)", v.Default, accepts)
	case v.Default != "" && !strings.HasPrefix(v.Default, "-"): // which stands for no value
		text = fmt.Sprintf(" (default: %s)", v.Default)
	}
	return kong.DefaultHelpValueFormatter(v) + text
}
