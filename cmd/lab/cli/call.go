package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

const callUsage = `lab call SOCKET COMMAND [KEY=VALUE... | JSON]

runs a command in a guest, and prints its result as JSON. It waits until the guest has
booted. A value that is not JSON is text.

	lab call a.agent.sock modprobe nouveau
	lab call a.agent.sock bo-moves moves=4
	lab call a.agent.sock run clinfo --list
	lab call a.agent.sock modprobe '{"name":"nouveau","options":["config=NvMSI=0"]}'

Commands, with their keys (cmd/lab/proto has their types and results):
`

// callHelp is the usage with the commands.
func callHelp() string {
	var b strings.Builder
	b.WriteString(callUsage)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range proto.Commands {
		fmt.Fprintf(w, "  %s\t%s\n", c.Name, c.About)
		if keys := keysOf(c.Args); len(keys) > 0 {
			fmt.Fprintf(w, "\t  %s\n", strings.Join(keys, " "))
		}
	}
	w.Flush()
	return b.String()
}

// keysOf returns the keys of a command's arguments, with their values where there are few.
func keysOf(args any) (keys []string) {
	if args == nil {
		return nil
	}
	for f := range reflect.TypeOf(args).Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if values := f.Tag.Get("values"); values != "" {
			key += "=" + values
		}
		keys = append(keys, key)
	}
	return keys
}

// bootWait is how long a guest may take to boot.
const bootWait = 4 * time.Minute

func call(ctx context.Context, out io.Writer, words []string) error {
	if len(words) < 2 || isHelp(words[0]) || isHelp(words[1]) {
		_, err := fmt.Fprint(out, callHelp())
		return err
	}
	if !slices.ContainsFunc(proto.Commands, func(c proto.Command) bool { return c.Name == words[1] }) {
		return fmt.Errorf("%q: no such command; lab call -h lists the commands", words[1])
	}
	args, err := arguments(words[1], words[2:])
	if err != nil {
		return err
	}
	result, err := lab.CallSocket(ctx, words[0], words[1], args, bootWait, os.Stderr)
	if len(result) > 0 {
		fmt.Fprintf(out, "%s\n", result)
		var failed *lab.CallError
		if words[1] == proto.CmdRun && errors.As(err, &failed) { // the result has the program's output
			said, _, _ := strings.Cut(failed.Message, "\n")
			return fmt.Errorf("%s: %s", failed.Cmd, said)
		}
	}
	return err
}

// arguments is the JSON object of a command's arguments, or nil.
func arguments(cmd string, words []string) (any, error) {
	switch {
	case len(words) == 0:
		return nil, nil
	case len(words) == 1 && strings.HasPrefix(words[0], "{"):
		return json.RawMessage(words[0]), nil
	case cmd == proto.CmdRun && !strings.Contains(words[0], "="):
		return proto.RunArgs{Argv: words}, nil
	case len(words) == 1 && !strings.Contains(words[0], "=") && (cmd == proto.CmdModprobe || cmd == proto.CmdRmmod):
		return proto.ModprobeArgs{Name: words[0]}, nil
	}
	args := make(map[string]any)
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("argument %q: want KEY=VALUE", w)
		}
		args[key] = value
		if json.Valid([]byte(value)) {
			args[key] = json.RawMessage(value)
		}
	}
	return args, nil
}
