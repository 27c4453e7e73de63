package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// validator holds JSON against the definitions in docs/reference/openapi.json.
func validator(t *testing.T) func(definition string, text []byte) {
	data, err := os.ReadFile("../../docs/reference/openapi.json")
	require.NoError(t, err)
	var file struct {
		Components struct{ Schemas json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(data, &file))
	data = fmt.Appendf(nil, `{"$defs": %s}`, bytes.ReplaceAll(file.Components.Schemas, []byte("#/components/schemas/"), []byte("#/$defs/")))
	return func(definition string, text []byte) {
		t.Helper()
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal(data, &schema))
		schema.Ref = "#/$defs/" + definition
		resolved, err := schema.Resolve(nil)
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(text, &value), "%s", text)
		require.NoError(t, resolved.Validate(value), "%s: %s", definition, text)
	}
}

// TestJSONKeepsToItsSchema: what servers and commands print, with a guest that has done something.
func TestJSONKeepsToItsSchema(t *testing.T) {
	defer goleak.VerifyNone(t)
	for setup, args := range map[string][]string{
		api.SetupVirtual:     {"--gpu", "name=a,vram=64MiB,socket=a.sock", "--gpu", "name=b,vram=64MiB,socket=b.sock"},
		api.SetupPassThrough: {"--socket", "a.sock"},
	} {
		t.Run(setup, func(t *testing.T) {
			validate := validator(t)
			t.Chdir(t.TempDir())
			at, err := filepath.Abs("c.sock")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile("f.yaml", nil, 0o600))
			server, ctx := serveHere(t, append([]string{"--json", "--control", at, "--config", "f.yaml"}, args...)...), t.Context()
			controlled(t, at, strings.Count(strings.Join(args, " "), ".sock"))
			printed := func(definition string, args ...string) {
				t.Helper()
				var stdout, stderr bytes.Buffer
				require.Equal(t, exitOK, doMain(ctx, append(args, "--json"), &stdout, &stderr), stderr.String())
				validate(definition, stdout.Bytes())
			}
			printed("probe.Device", "vfio-user", "probe", "a.sock")
			h, err := client.Dial("a.sock", nil)
			require.NoError(t, err)
			defer h.Close()
			require.NoError(t, h.Write32(vfiouser.RegionBAR0, 0x001700, 0xffff0000)) // a rule that it breaks
			_, err = h.Read32(vfiouser.RegionBAR0, 0xffc)                            // and a register that there is not
			require.NoError(t, err)
			control := []string{"--control", at}
			name := "card"
			if setup == api.SetupVirtual {
				name = "a"
				printed("GPU", append([]string{"gpu", "set", "a", "weight=7", "limits.request=2s"}, control...)...)
				printed("Attachment", append([]string{"gpu", "attach", "a"}, control...)...)
				printed("Saved", append([]string{"config", "save"}, control...)...)
				printed("GPU", append([]string{"gpu", "add", "name=d", "socket=d.sock", "vram=64MiB"}, control...)...)
				printed("Scheduler", append([]string{"sched", "set", "credit.period=20ms"}, control...)...)
				printed("Scheduler", append([]string{"sched", "show"}, control...)...)
				printed("GPUReport", append([]string{"gpu", "remove", "d"}, control...)...)
				require.NoError(t, os.WriteFile("f.yaml", []byte("limits: {request: 3s}\n"), 0o600))
				printed("Reload", append([]string{"reload"}, control...)...)
			}
			printed("Status", append([]string{"status"}, control...)...)
			printed("GPUReport", append([]string{"gpu", "show", name}, control...)...)
			printed("RegisterTable", append([]string{"regs"}, control...)...)
			var list bytes.Buffer
			require.Equal(t, exitOK, doMain(ctx, append([]string{"gpu", "list", "--json"}, control...), &list, new(bytes.Buffer)))
			var gpus []json.RawMessage
			require.NoError(t, json.Unmarshal(list.Bytes(), &gpus))
			for _, g := range gpus {
				validate("GPU", g)
			}
			lines := server.end()
			require.Len(t, lines, 2)
			validate("Serving", []byte(lines[0]))
			validate("Report", []byte(lines[1]))
		})
	}
}
