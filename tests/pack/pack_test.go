// Package pack tests the Debian package: what make deb builds is unpacked, its server started with its configuration,
// and its numbers read by Debian's own Prometheus with the package's alerts. A new user's first hour is a test, too, with two guests.
package pack

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// patience bounds what a busy machine may take.
const patience = time.Minute

// unpacked builds the package and unpacks it.
func unpacked(t *testing.T) (work, root string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb: apt-get install dpkg")
	}
	work = t.TempDir()
	output(t, "make", "-C", "../..", "deb", "VERSION=v0.1.2", "OUT="+work)
	root = filepath.Join(work, "root")
	output(t, "dpkg-deb", "-x", filepath.Join(work, "umbra_0.1.2_amd64.deb"), root)
	return work, root
}

// output is what a program says, which must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// configured is the package's configuration as it is, but for the folder, the group, which this machine may not have, and
// the address for Prometheus.
func configured(t *testing.T, work, root string) (config, address string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "etc/umbra/umbra.yaml"))
	require.NoError(t, err)
	me, err := user.Current()
	require.NoError(t, err)
	address = free(t)
	config = filepath.Join(work, "umbra.yaml")
	changed := strings.NewReplacer("/run/umbra", work, "group: kvm", "group: "+me.Gid, "# metrics: 127.0.0.1:9101", "metrics: "+address).Replace(string(text))
	require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
	return config, address
}

// free is an address where nothing listens.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// prometheus starts Debian's Prometheus, which reads the numbers at an address all the time, and returns where it answers.
func prometheus(t *testing.T, programs, work, alerts, address string) string {
	reader := filepath.Join(work, "prometheus.yml")
	require.NoError(t, os.WriteFile(reader, []byte("global: {scrape_interval: 200ms, evaluation_interval: 200ms}\nrule_files: ["+alerts+"]\nscrape_configs: [{job_name: umbra, static_configs: [{targets: ['"+address+"']}]}]\n"), 0o600))
	asked := free(t)
	started(t, filepath.Join(programs, "prometheus"), "--config.file", reader, "--storage.tsdb.path", filepath.Join(work, "data"), "--web.listen-address", asked)
	return asked
}

// TestRemovedLinks: a removed package leaves no unit enabled in an image where no systemd runs; one that is replaced does.
func TestRemovedLinks(t *testing.T) {
	root := t.TempDir()
	var links []string
	for _, name := range []string{"multi-user.target.wants/umbra.service", "sockets.target.wants/umbra-control.socket", "sockets.target.wants/umbra-gpu@desk.socket"} {
		link := filepath.Join(root, "etc/systemd/system", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
		require.NoError(t, os.Symlink("/nowhere", link))
		links = append(links, link)
	}
	others := filepath.Join(root, "etc/systemd/system/sockets.target.wants/other.socket")
	require.NoError(t, os.Symlink("/nowhere", others))
	t.Setenv("DPKG_ROOT", root)
	for _, what := range []string{"upgrade", "remove"} {
		for _, script := range []string{"prerm", "postrm"} {
			output(t, "sh", "../../contrib/deb/"+script, what)
		}
		for _, link := range links {
			_, err := os.Lstat(link)
			require.Equal(t, what == "remove", os.IsNotExist(err), link)
		}
	}
	_, err := os.Lstat(others)
	require.NoError(t, err)
}

// TestPackage: the package has all that its units name.
func TestPackage(t *testing.T) {
	scale.ReleaseOnly(t)
	work, root := unpacked(t)
	umbra := filepath.Join(root, "usr/bin/umbra")
	require.Contains(t, output(t, umbra, "--version"), "umbra v0.1.2 ")
	for _, name := range []string{"usr/share/man/man1/umbra-serve.1", "usr/lib/systemd/system/umbra.service", "usr/lib/systemd/system/umbra-gpu@.socket", "usr/lib/sysusers.d/umbra.conf", "usr/share/umbra/grafana/umbra.json", "usr/share/bash-completion/completions/umbra"} {
		require.FileExists(t, filepath.Join(root, name))
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/umbra.service"))
	require.NoError(t, err)
	require.Contains(t, string(unit), "ExecStart=/usr/bin/umbra serve --config /etc/umbra/umbra.yaml\n")

	config, address := configured(t, work, root)
	require.Contains(t, output(t, umbra, "serve", "--check", "--config", config), "nothing is wrong")

	programs, err := (&fetch.Cache{Dir: cache(t), Progress: t.Output()}).Prometheus(t.Context())
	require.NoError(t, err)
	promtool := filepath.Join(programs, "promtool")
	alerts := filepath.Join(root, "usr/share/umbra/prometheus/umbra.rules.yml")
	output(t, promtool, "check", "rules", alerts)
	output(t, promtool, "check", "config", filepath.Join(root, "usr/share/umbra/prometheus/umbra.scrape.yml"))

	started(t, umbra, "serve", "--config", config)
	var guest *client.Client
	require.Eventually(t, func() bool {
		guest, err = client.Dial(filepath.Join(work, "desk.sock"), nil)
		return err == nil
	}, patience, 10*time.Millisecond)
	defer guest.Close()
	for range 100 {
		_, err := guest.Read32(vfiouser.RegionBAR0, 0)
		require.NoError(t, err)
	}
	answer, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = answer.Body
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)

	asked := prometheus(t, programs, work, alerts, address)
	require.Eventually(t, func() bool {
		return query(t.Context(), asked, `umbra_gpu_region_reads_total{gpu="desk",region="BAR0"}`) == "100"
	}, patience, 100*time.Millisecond)
	require.Equal(t, "1", query(t.Context(), asked, `umbra_gpu_attached{gpu="desk"}`))
	require.Equal(t, "", query(t.Context(), asked, "ALERTS"))
}

// query is the only value of an expression, or "".
func query(ctx context.Context, address, expression string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expression), nil)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	var found struct {
		Data struct{ Result []struct{ Value []any } }
	}
	if json.Unmarshal(text, &found) != nil || len(found.Data.Result) != 1 {
		return ""
	}
	value, _ := found.Data.Result[0].Value[1].(string)
	return value
}

// started starts a program, which the test's end stops.
func started(t *testing.T, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()
	})
}

// cache is the folder of fetched packages.
func cache(t *testing.T) string {
	dir, err := fetch.DefaultDir()
	require.NoError(t, err)
	return dir
}
