package realnode

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

const containerdSocket = "/run/containerd/containerd.sock"

const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = "` + containerdSocket + `"

# By default in /opt.
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "` + pauseImage + `"

[plugins.'io.containerd.cri.v1.runtime']
  # Children of this test cannot be protected better than the test.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[1]s"]
    conf_dir = "%[2]s"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "%[3]s"
      SystemdCgroup = false
`

// networkConfig connects each pod by a pair of interfaces with the node, which routes: so the answers of a pod to another one behind a Service pass through
// the node, which has to change their addresses back.
const networkConfig = `{
  "cniVersion": "1.0.0",
  "name": "node",
  "plugins": [{
    "type": "ptp",
    "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "` + podNetwork + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

const podNetwork = "10.244.0.0/24"

// startContainerd starts the container runtime, with the image that all pods need.
func (n *Node) startContainerd(ctx context.Context) error {
	network, err := n.write("cni/10-node.conflist", networkConfig)
	if err != nil {
		return err
	}
	config, err := n.write("containerd.toml", fmt.Sprintf(containerdConfig, n.runtime.Dir, filepath.Dir(network), n.runtime.Path(wrapper)))
	if err != nil {
		return err
	}
	check := func(ctx context.Context) error {
		return exec.CommandContext(ctx, n.runtime.Path(ctr), "--address", containerdSocket, "version").Run()
	}
	if err := n.start(ctx, n.runtime.Path(containerd), []string{"--config=" + config}, check); err != nil {
		return err
	}
	return n.importToolbox(ctx)
}
