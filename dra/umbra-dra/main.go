// Command umbra-dra is the driver on a node, as the DaemonSet of examples/driver.yaml runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/umbra-gpu/umbra/dra/plugin"
)

type command struct {
	Node       string            `env:"NODE_NAME" required:"" help:"Name of this node."`
	Card       map[string]string `placeholder:"NAME=CONTROL" default:"card0=/run/umbra/control.sock" help:"Each card of the node: a name for its device, and the control socket of its server. By default card0=/run/umbra/control.sock."`
	Chip       string            `enum:"gf100,gh100" default:"gf100" help:"Chip that guests see: ${enum}."`
	Sockets    string            `type:"path" default:"/run/umbra-dra" help:"Folder of the GPUs' sockets. It is there before the servers start, belongs to root and their group with mode 2710, and is one of their --sandbox-folders."`
	CDI        string            `name:"cdi" type:"path" default:"/var/run/cdi" help:"Folder where the container runtime finds CDI files."`
	Kubelet    string            `type:"path" default:"/var/lib/kubelet" help:"Folder of the kubelet, with plugins and plugins_registry."`
	Kubeconfig string            `type:"path" help:"How to reach the API server; inside a pod it is known."`
	Every      time.Duration     `default:"5s" help:"How often to look whether a server started anew or a card changed."`
}

func main() {
	var c command
	kong.Parse(&c, kong.Name("umbra-dra"), kong.Description("Kubernetes' DRA driver for virtual GPUs of Umbra."))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "umbra-dra:", err)
		os.Exit(1)
	}
}

func (c *command) run(ctx context.Context) error {
	for name := range c.Card {
		if why := validation.IsDNS1123Label(name); why != nil {
			return fmt.Errorf("--card %s: %s", name, why[0])
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100 // each claim is asked for, and a node may start many pods at once
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(c.Kubelet, "plugins", plugin.Driver)
	for _, folder := range []string{data, c.CDI} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	signals := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p := plugin.New(plugin.Config{Node: c.Node, Cards: c.Card, Chip: c.Chip, Sockets: c.Sockets, CDI: c.CDI}, fail)

	claims, err := kube.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := p.Sweep(ctx, claims.Items); err != nil {
		klog.FromContext(ctx).Error(err, "Not everything is removed that no claim owns")
	}
	helper, err := kubeletplugin.Start(ctx, p, kubeletplugin.DriverName(plugin.Driver), kubeletplugin.NodeName(c.Node), kubeletplugin.KubeClient(kube),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(filepath.Join(c.Kubelet, "plugins_registry")))
	if err != nil {
		return err
	}
	defer helper.Stop()
	for {
		changed, err := p.Mend(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Prepared GPUs are missing")
		}
		if changed != nil {
			if err := helper.PublishResources(ctx, *changed); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if signals.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		case <-time.After(c.Every):
		}
	}
}
