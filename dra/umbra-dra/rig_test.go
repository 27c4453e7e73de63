package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/dra/plugin"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

const (
	asDriver = "UMBRA_TEST_AS_DRIVER" // this program is the driver
	patience = 20 * time.Second
)

var umbra string // the server's program

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		main()
		return
	}
	folder, err := os.MkdirTemp("", "dra")
	if err != nil {
		panic(err)
	}
	umbra = filepath.Join(folder, "umbra")
	build := exec.Command("go", "build", "-C", "../..", "-o", umbra, "./cmd/umbra")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

// rig is a node with a server and the driver, each a process that can be killed. The kubelet and the scheduler are the test.
type rig struct {
	*scheduler
	t              *testing.T
	dir            string
	cluster        *cluster
	log            *os.File // of both
	server, driver *exec.Cmd
	info           *registration.PluginInfo
	conn           *grpc.ClientConn
}

func newRig(t *testing.T) *rig {
	dir, err := os.MkdirTemp("", "k") // short, for paths of sockets are
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, cluster: newCluster(t)}
	r.log, err = os.Create(r.path("log"))
	require.NoError(t, err)
	for _, f := range []string{"sockets", "plugins_registry", "cdi"} {
		require.NoError(t, os.Mkdir(r.path(f), 0o710))
	}
	r.startServer()
	r.startDriver()
	t.Cleanup(func() {
		r.conn.Close()
		kill(r.driver)
		kill(r.server)
		if log, err := os.ReadFile(r.log.Name()); t.Failed() {
			t.Logf("%s %v", log, err)
		}
		r.log.Close()
	})
	require.Eventually(t, func() bool { return r.cluster.published() != nil }, patience, time.Millisecond)
	r.scheduler = newScheduler(t, r.cluster.published())
	return r
}

// placed makes a claim that the scheduler placed on the node.
func (r *rig) placed(vram, weight, channels string) *resourceapi.ResourceClaim {
	c := r.claim(vram, weight, channels)
	require.True(r.t, r.place(c, node))
	r.cluster.put(c, true)
	return c
}

// delete removes a claim from the cluster.
func (r *rig) delete(c *resourceapi.ResourceClaim) {
	r.cluster.put(c, false)
	r.free(c)
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait() // it was killed
}

// start starts a process, which ends with the test.
func (r *rig) start(env, program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), env)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stdout, c.Stderr = r.log, r.log
	require.NoError(r.t, c.Start())
	return c
}

// await waits until f succeeds.
func (r *rig) await(f func() error) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return f() == nil }, patience, 2*time.Millisecond)
}

func (r *rig) startServer() {
	r.server = r.start("", umbra, "serve", "--control", r.path("control"), "--vram", "2GiB", "--compiler", "off", "--sandbox-folders", r.path("sockets"))
	r.await(func() error { _, err := r.status(); return err })
}

func (r *rig) status() (api.Status, error) {
	return api.NewClient(r.path("control")).Status(r.t.Context())
}

// startDriver starts the driver and finds it as the kubelet does: by its socket in the registry.
func (r *rig) startDriver() {
	r.driver = r.start(asDriver+"=1", os.Args[0], "--node", node, "--card", "card0="+r.path("control"), "--sockets", r.path("sockets"), "--cdi", r.path("cdi"),
		"--kubelet", r.dir, "--kubeconfig", r.cluster.config, "--every", "50ms")
	r.await(func() error {
		conn := r.dial(filepath.Join(r.path("plugins_registry"), plugin.Driver+"-reg.sock"))
		defer conn.Close()
		c := registration.NewRegistrationClient(conn)
		info, err := c.GetInfo(r.t.Context(), &registration.InfoRequest{})
		if err == nil {
			_, err = c.NotifyRegistrationStatus(r.t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
		}
		r.info = info
		return err
	})
	if r.conn != nil {
		r.conn.Close()
	}
	r.conn = r.dial(r.info.Endpoint)
}

func (r *rig) dial(socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r.t, err)
	return conn
}

// prepare asks as the kubelet does. The text is the error of the claim or of the call.
func (r *rig) prepare(c *resourceapi.ResourceClaim) (devices []*drapb.Device, problem string) {
	a, err := drapb.NewDRAPluginClient(r.conn).NodePrepareResources(r.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
	if err != nil {
		return nil, err.Error()
	}
	return a.Claims[string(c.UID)].Devices, a.Claims[string(c.UID)].Error
}

func (r *rig) unprepare(c *resourceapi.ResourceClaim) (problem string) {
	a, err := drapb.NewDRAPluginClient(r.conn).NodeUnprepareResources(r.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}})
	if err != nil {
		return err.Error()
	}
	return a.Claims[string(c.UID)].Error
}

func (r *rig) cdiPath(c *resourceapi.ResourceClaim) string {
	return filepath.Join(r.path("cdi"), "dra-"+string(c.UID)+"-"+plugin.Driver+".json")
}

// edits finds what a container runtime does for the first CDI device of a claim.
func (r *rig) edits(c *resourceapi.ResourceClaim, d []*drapb.Device) cdi.ContainerEdits {
	data, err := os.ReadFile(r.cdiPath(c))
	require.NoError(r.t, err)
	var spec cdi.Spec
	require.NoError(r.t, json.Unmarshal(data, &spec))
	require.Equal(r.t, []string{spec.Kind + "=" + spec.Devices[0].Name}, d[0].CdiDeviceIds)
	return spec.Devices[0].ContainerEdits
}

// attach connects to a claim's first GPU, as QEMU in its container does, and reads a register.
func (r *rig) attach(c *resourceapi.ResourceClaim, d []*drapb.Device) error {
	h, err := client.Dial(filepath.Join(r.edits(c, d).Mounts[0].HostPath, "gpu.sock"), nil)
	if err != nil {
		return err
	}
	defer h.Close()
	_, err = h.Read32(0, 0)
	return err
}

// requireNothing is held when no claim is prepared.
func (r *rig) requireNothing(t *testing.T) {
	t.Helper()
	s, err := r.status()
	require.NoError(t, err)
	require.Empty(t, s.GPUs)
	for _, folder := range []string{"sockets", "cdi"} {
		entries, err := os.ReadDir(r.path(folder))
		require.NoError(t, err)
		require.Empty(t, entries)
	}
}
