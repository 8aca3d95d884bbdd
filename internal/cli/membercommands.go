package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/attach"
	"k8s.io/kubectl/pkg/cmd/describe"
	"k8s.io/kubectl/pkg/cmd/exec"
	"k8s.io/kubectl/pkg/cmd/get"
	"k8s.io/kubectl/pkg/cmd/logs"
)

func newGet(streams genericiooptions.IOStreams) *cobra.Command {
	v := &view{streams: streams}
	cmd := v.command(get.NewCmdGet("cellplane", v.factory(), streams), func(context.Context, []string) error {
		scope, err := v.operationScope(scopeFederation, scopeMembers, scopeAll)
		if err != nil {
			return err
		}
		return v.openAll(scope, v.chosen())
	})
	cmd.Use = "get KIND [NAME...]"
	cmd.GroupID = groupClusters
	cmd.Short = "Show objects of the federation and of its clusters"
	cmd.Long = `Show the templates of the federation, the objects of its clusters, or both, as
karmadactl does. All flags of kubectl get can be used.

The column CLUSTER names the cluster, or Karmada for a template; ADOPTION is Y
for an object that the federation manages. In other formats the annotation
cellplane.io/cluster names the cluster. A cluster that fails is reported, the
others are shown, and the exit code is 1.`
	cmd.Example = `  cellplane get deployments
  cellplane get deploy,svc --operation-scope all -n shop
  cellplane get pods -A -C member1,member2 -w`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.Flags().Changed("filename") {
			return errors.New("say what to get, such as `cellplane get deployments`")
		}
		return nil
	}
	cmd.Flags().Lookup("raw").Hidden = true // a path has no meaning for several clusters
	v.addScope(cmd, "karmada, members or all")
	cmd.Flags().StringSliceVarP(&v.clusters, "clusters", "C", nil, "clusters to look at (default: all)")
	return cmd
}

func newDescribe(streams genericiooptions.IOStreams) *cobra.Command {
	v := &view{streams: streams}
	cmd := v.command(describe.NewCmdDescribe("cellplane", v.factory(), streams), func(_ context.Context, args []string) error {
		scope, err := v.operationScope(scopeFederation, scopeMembers)
		if err != nil {
			return err
		}
		if scope == scopeFederation {
			return v.openFederation()
		}
		if len(args) == 1 && !strings.Contains(args[0], "/") {
			args = nil // all of a kind
		}
		return v.openOne(args...)
	})
	cmd.Use = "describe KIND [NAME]"
	cmd.GroupID = groupClusters
	cmd.Short = "Show the details of templates, or of objects in a cluster"
	cmd.Long = `Show the details of templates, or of objects in a cluster, with their events.
With --operation-scope members the cluster that has the object is found. All
flags of kubectl describe can be used.`
	cmd.Example = `  cellplane describe deploy/web
  cellplane describe deploy/web -C member1`
	v.addScope(cmd, "karmada or members")
	v.addCluster(cmd)
	return cmd
}

func newLogs(streams genericiooptions.IOStreams) *cobra.Command {
	v := &view{streams: streams}
	cmd := v.command(logs.NewCmdLogs(v.factory(), streams), v.openPod)
	cmd.Use = "logs POD | KIND/NAME"
	cmd.Short = "Print the logs of a pod in a cluster"
	cmd.Example = `  cellplane logs web-7887448d46-mkb48 -f
  cellplane logs deploy/web -C member1 --all-containers`
	return v.forPods(cmd)
}

func newExec(streams genericiooptions.IOStreams) *cobra.Command {
	v := &view{streams: streams}
	cmd := v.command(exec.NewCmdExec(v.factory(), streams), v.openPod)
	cmd.Use = "exec POD | KIND/NAME -- COMMAND [ARGUMENTS]"
	cmd.Short = "Run a command in a pod of a cluster"
	cmd.Example = `  cellplane exec -it web-7887448d46-mkb48 -- sh
  cellplane exec deploy/web -C member1 -- env`
	return v.forPods(cmd)
}

func newAttach(streams genericiooptions.IOStreams) *cobra.Command {
	v := &view{streams: streams}
	cmd := v.command(attach.NewCmdAttach(v.factory(), streams), v.openPod)
	cmd.Use = "attach POD | KIND/NAME"
	cmd.Short = "Attach to a process in a pod of a cluster"
	cmd.Example = `  cellplane attach -it web-7887448d46-mkb48 -C member1`
	return v.forPods(cmd)
}

// forPods completes a command about a pod.
func (v *view) forPods(cmd *cobra.Command) *cobra.Command {
	cmd.GroupID = groupClusters
	cmd.Long = cmd.Short + `. Without -C the
cluster that has the pod is found. All flags of kubectl ` + cmd.Name() + ` can be used.`
	v.addCluster(cmd)
	return cmd
}

// openPod shows the cluster of the pod that the first argument names.
func (v *view) openPod(_ context.Context, args []string) error {
	if len(args) == 0 {
		return v.openOne()
	}
	pod := args[0]
	if !strings.Contains(pod, "/") {
		pod = "pods/" + pod
	}
	return v.openOne(pod)
}

// openOne shows the cluster that has an object.
func (v *view) openOne(object ...string) error {
	cluster, err := v.clusterOf(object...)
	if err != nil {
		return err
	}
	return v.openMember(cluster)
}

func (v *view) addScope(cmd *cobra.Command, scopes string) {
	cmd.Flags().StringVar(&v.scope, "operation-scope", "", scopes+" (default: karmada, or members with -C)")
}

func (v *view) addCluster(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&v.clusters, "cluster", "C", nil, "cluster (default: the one that has the object)")
}

// operationScope returns the chosen scope.
func (v *view) operationScope(allowed ...string) (string, error) {
	if v.scope == "" {
		if len(v.clusters) > 0 {
			return scopeMembers, nil
		}
		return scopeFederation, nil
	}
	for _, scope := range allowed {
		if v.scope == scope {
			return scope, nil
		}
	}
	return "", fmt.Errorf("--operation-scope must be one of %s, not %q", strings.Join(allowed, ", "), v.scope)
}
