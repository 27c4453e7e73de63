package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// reference is a schema that names a definition.
type reference struct {
	Ref string `json:"$ref"`
}

// operation is one in docs/reference/openapi.json.
type operation struct {
	Responses map[string]struct {
		Content map[string]struct{ Schema reference }
	}
}

// operations are those of docs/reference/openapi.json by path and method.
func operations(t *testing.T) map[string]map[string]operation {
	data, err := os.ReadFile("../../docs/reference/openapi.json")
	require.NoError(t, err)
	var file struct {
		Paths map[string]map[string]operation
	}
	require.NoError(t, json.Unmarshal(data, &file))
	return file.Paths
}

// TestRepliesKeepToOpenAPI: every operation of the file is answered as it says, whether it is done or not; and every
// route has one. Prometheus' own checks find nothing in the metrics, on the control socket and at a TCP address.
func TestRepliesKeepToOpenAPI(t *testing.T) {
	defer goleak.VerifyNone(t)
	paths, validate := operations(t), validator(t)
	left := make(map[string]bool)
	for at, methods := range paths {
		for method := range methods {
			left[strings.ToUpper(method)+" "+at] = true
		}
	}
	require.Len(t, left, len(api.Routes())+1)
	t.Chdir(t.TempDir())
	socket, err := filepath.Abs("c.sock")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("f.yaml", nil, 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	server := serveHere(t, "--json", "--control", socket, "--config", "f.yaml", "--metrics", address, "--inject", "--gpu", "name=a,vram=64MiB,socket=a.sock")
	controlled(t, socket, 1)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for _, r := range []struct {
		operation, path, body string
		code                  int
	}{
		{"GET /v1/status", "/v1/status", "", 200},
		{"GET /v1/report", "/v1/report", "", 200},
		{"POST /v1/gpus", "/v1/gpus", `{"gpu":"name=b,socket=b.sock,vram=64MiB"}`, 200},
		{"POST /v1/gpus", "/v1/gpus", `{"gpu":"name=b,socket=b.sock,vram=64MiB"}`, 409},
		{"POST /v1/gpus", "/v1/gpus", `{"gpu":"name=c,socket=c.sock,vram=64,weight=x"}`, 400},
		{"POST /v1/gpus", "/v1/gpus", `{`, 400},
		{"POST /v1/gpus", "/v1/gpus", strings.Repeat(" ", 2<<20), 413},
		{"GET /v1/gpus/{name}", "/v1/gpus/a", "", 200},
		{"GET /v1/gpus/{name}", "/v1/gpus/nobody", "", 404},
		{"PATCH /v1/gpus/{name}", "/v1/gpus/a", `{"options":"weight=7"}`, 200},
		{"PATCH /v1/gpus/{name}", "/v1/gpus/a", `{"options":"wieght=7,cap=300"}`, 400},
		{"POST /v1/gpus/{name}/inject", "/v1/gpus/a/inject", `{"kind":"lost-interrupt","count":1}`, 200},
		{"POST /v1/gpus/{name}/inject", "/v1/gpus/a/inject", `{"kind":"lost"}`, 400},
		{"DELETE /v1/gpus/{name}", "/v1/gpus/b?force=true", "", 200},
		{"DELETE /v1/gpus/{name}", "/v1/gpus/b", "", 404},
		{"GET /v1/scheduler", "/v1/scheduler", "", 200},
		{"PATCH /v1/scheduler", "/v1/scheduler", `{"options":"policy=band"}`, 200},
		{"PATCH /v1/scheduler", "/v1/scheduler", `{"options":"policy=fair"}`, 400},
		{"GET /v1/registers", "/v1/registers?gpu=a", "", 200},
		{"GET /v1/registers", "/v1/registers?gpu=nobody", "", 404},
		{"GET /v1/config", "/v1/config", "", 200},
		{"POST /v1/reload", "/v1/reload", "", 200},
		{"GET /v1/trace", "/v1/trace?gpu=a&for=1ms", "", 200},
		{"GET /v1/trace", "/v1/trace?gpu=nobody", "", 404},
		{"GET /v1/trace", "/v1/trace?for=1", "", 400},
		{"GET /metrics", "/metrics", "", 200},
	} {
		method, at, _ := strings.Cut(r.operation, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "http://umbra"+r.path, strings.NewReader(r.body))
		require.NoError(t, err)
		answer, err := client.Do(request)
		require.NoError(t, err, r.operation)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, r.code, answer.StatusCode, "%s %.200s: %s", r.operation, r.body, text)
		kind := "default"
		if r.code == http.StatusOK {
			kind = "200"
			delete(left, r.operation)
		}
		if r.operation == "GET /v1/trace" && kind == "200" {
			require.Contains(t, string(text), `umbra-trace 1 {`)
			continue
		}
		if r.path == "/metrics" {
			require.Contains(t, string(text), `umbra_gpu_weight{gpu="a"} 7`)
			continue
		}
		validate(path.Base(paths[at][strings.ToLower(method)].Responses[kind].Content["application/json"].Schema.Ref), text)
		if kind == "default" {
			var failed api.Error
			require.NoError(t, json.Unmarshal(text, &failed))
			require.NotEmpty(t, failed.Causes, "%s", text)
		}
		if strings.Contains(r.body, "cap=300") {
			require.Contains(t, string(text), `{"thing":"gpu a: cap","value":"300","remedy":"must be 0 to 100"}`)
		}
	}
	require.Empty(t, left)
	var log strings.Builder
	require.Equal(t, exitUsage, doMain(t.Context(), []string{"serve", "--control", "d.sock", "--metrics", address}, io.Discard, &log))
	require.Equal(t, "umbra: --metrics: "+address+": another program listens there; choose another port\n", log.String())

	scraped, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer scraped.Body.Close()
	other, err := http.Get("http://" + address + "/v1/status")
	require.NoError(t, err)
	defer other.Body.Close()
	require.Equal(t, http.StatusNotFound, other.StatusCode)
	problems, err := promlint.New(scraped.Body).Lint() // as promtool check metrics
	require.NoError(t, err)
	require.Empty(t, problems)
	server.end()
}
