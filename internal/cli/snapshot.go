package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/snapshot"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot",
		GroupID: groupCells,
		Short:   "Save the etcds of the hub and of all cells as one set",
		Long: `Save the etcds of the hub and of all cells, list what was saved, and check it.
"cellplane restore" brings it back.

The loss of a cell needs no snapshot: another cell has a copy of each object. A
set is for the loss of several cells at once, or of the hub, and for mistakes.`,
		Example: `  cellplane snapshot save --keep 14
  cellplane snapshot list
  cellplane snapshot verify .cellplane/snapshots/20261119T173000Z`,
	}
	cmd.AddCommand(newSnapshotSave(), newSnapshotList(), newSnapshotVerify())
	return cmd
}

// hubEtcdFlags say how the etcd of the hub is reached. The hub does not tell.
type hubEtcdFlags struct {
	endpoints                             []string
	caFile, certFile, keyFile, prefixFlag string
}

func (f *hubEtcdFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.endpoints, "hub-etcd-endpoints", nil, "addresses of the hub's etcd (default: those of the local federation)")
	cmd.Flags().StringVar(&f.caFile, "hub-etcd-cafile", "", "CA of the hub's etcd")
	cmd.Flags().StringVar(&f.certFile, "hub-etcd-certfile", "", "client certificate for the hub's etcd")
	cmd.Flags().StringVar(&f.keyFile, "hub-etcd-keyfile", "", "private key of the client certificate")
	cmd.Flags().StringVar(&f.prefixFlag, "hub-etcd-prefix", "/registry", "--etcd-prefix of the hub's API server")
}

// client connects to the etcd. Without flags it is that of the local federation, if the hub is.
func (f *hubEtcdFlags) client(hub *hubFlags) (*clientv3.Client, error) {
	endpoints, ca, cert, key := f.endpoints, f.caFile, f.certFile, f.keyFile
	if len(endpoints) == 0 {
		own, err := hub.localKubeconfig()
		if err != nil {
			return nil, err
		}
		if own == "" {
			return nil, errors.New("the etcd of the hub is not known: set --hub-etcd-endpoints, --hub-etcd-cafile, --hub-etcd-certfile and --hub-etcd-keyfile")
		}
		endpoint, ownCA, ownCert, ownKey, err := local.HubEtcd(filepath.Dir(own))
		if err != nil {
			return nil, err
		}
		endpoints, ca, cert, key = []string{endpoint}, ownCA, ownCert, ownKey
	}
	credentials := &corev1.Secret{Data: map[string][]byte{}}
	for name, file := range map[string]string{fleet.StoreCAKey: ca, corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key} {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the credentials of the hub's etcd: %w", err)
		}
		credentials.Data[name] = content
	}
	config, err := fleet.StoreTLS(credentials)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the etcd of the hub: %w", err)
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func newSnapshotSave() *cobra.Command {
	var hub hubFlags
	var etcd hubEtcdFlags
	var dir string
	var keep int
	wait := 10 * time.Minute
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save a set",
		Long: `Save the etcds of the hub and of all cells that have not failed, as one set, and
check the files. No change of cells may be under way meanwhile: the command
waits for its end. All or nothing is saved.

A set contains all objects, with Secrets, as the etcds store them: keep it where
nobody else can read it, on other disks than the etcds, and elsewhere. Copy or
move the directory of a set as a whole. Certificates, keys for encryption at
rest and what clusters run are not part of it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 0 {
				return fmt.Errorf("--keep is %d; it cannot be negative", keep)
			}
			to, err := snapshotDir(dir, &hub)
			if err != nil {
				return err
			}
			set, err := saveSnapshot(cmd.Context(), &hub, &etcd, to, wait)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Saved %s: %d stores, %s, epoch %d.\n", set.Dir, len(set.Stores), mebibytes(set.Size()), set.Epoch)
			removed, err := snapshot.Prune(to, keep)
			for _, old := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "Removed %s.\n", old.Dir)
			}
			return err
		},
	}
	hub.add(cmd)
	etcd.add(cmd)
	addSnapshotDirFlag(cmd, &dir)
	cmd.Flags().IntVar(&keep, "keep", 0, "remove the oldest sets and keep so many; 0 keeps all")
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for the end of a change of cells")
	return cmd
}

func addSnapshotDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "sets", "", "directory of the sets (default: snapshots in the directory of the local federation)")
}

// snapshotDir returns the directory of sets.
func snapshotDir(given string, hub *hubFlags) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	own, err := hub.localKubeconfig()
	if err != nil {
		return "", err
	}
	if own == "" {
		return "", errors.New("set the directory of the sets with --sets")
	}
	return filepath.Join(filepath.Dir(own), "snapshots"), nil
}

func saveSnapshot(ctx context.Context, hub *hubFlags, etcd *hubEtcdFlags, to string, wait time.Duration) (*snapshot.Set, error) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // it logs closed connections
	api, err := hub.client()
	if err != nil {
		return nil, err
	}
	store, err := etcd.client(hub)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	pool := &cellconn.Pool{Hub: api, Secrets: api}
	defer pool.Close()
	saver := &snapshot.Saver{
		Dir: to, Hub: store, HubPrefix: etcd.prefixFlag, Wait: wait, Now: time.Now,
		Topology: func(ctx context.Context) (*v1alpha1.CellTopology, error) { return readTopology(ctx, api) },
		Cell: func(ctx context.Context, name string) (*clientv3.Client, error) {
			opened, err := pool.Store(ctx, name)
			if err != nil {
				return nil, err
			}
			return opened.Client(), nil
		},
	}
	return saver.Save(ctx)
}

func newSnapshotList() *cobra.Command {
	var hub hubFlags
	var dir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := snapshotDir(dir, &hub)
			if err != nil {
				return err
			}
			sets, damaged := snapshot.List(from)
			if errors.Is(damaged, os.ErrNotExist) {
				fmt.Fprintf(cmd.OutOrStdout(), "There are no sets in %s.\n", from)
				return nil
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SET\tTIME\tSTORES\tSIZE\tEPOCH")
			for _, s := range sets {
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\n", s.Name(), s.Time.Format(time.RFC3339), len(s.Stores), mebibytes(s.Size()), s.Epoch)
			}
			return errors.Join(w.Flush(), damaged)
		},
	}
	addDirFlag(cmd, &hub.dir)
	addSnapshotDirFlag(cmd, &dir)
	return cmd
}

func newSnapshotVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify SET",
		Short: "Check that the files of a set are complete and unchanged",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := snapshot.Load(args[0])
			if err != nil {
				return err
			}
			if err := set.Verify(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The set %s is complete: %d stores, %s.\n", set.Name(), len(set.Stores), mebibytes(set.Size()))
			return nil
		},
	}
}

func newRestore() *cobra.Command {
	var dir, store string
	var member snapshot.Member
	cmd := &cobra.Command{
		Use:     "restore SET",
		GroupID: groupCells,
		Short:   "Bring the federation back to a set that was saved",
		Long: `Bring the hub and all cells back to what they had when "cellplane snapshot save"
saved a set. What was written since is lost; clusters go on with what they run,
and are brought to the older state when the federation is up.

Without --store the local federation is restored, which must be down. The stores
that it had are kept beside the new ones. Repeat it if it was interrupted.

With --store the data directory of one member of an etcd is made: of the hub, or
of the cell with that name. docs/operations.md says in which order a federation
on Kubernetes is restored.`,
		Example: `  cellplane down && cellplane restore .cellplane/snapshots/20261119T173000Z && cellplane up
  cellplane restore /snapshots/20261119T173000Z --store cell-a --data-dir /var/lib/etcd/data \
    --name etcd-0 --initial-advertise-peer-urls https://etcd-0.etcd:2380 \
    --initial-cluster etcd-0=https://etcd-0.etcd:2380,etcd-1=https://etcd-1.etcd:2380,etcd-2=https://etcd-2.etcd:2380`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := snapshot.Load(args[0])
			if err != nil {
				return err
			}
			if store != "" {
				return restoreMember(cmd.Context(), cmd.OutOrStdout(), set, store, member)
			}
			for _, name := range []string{"data-dir", "name", "initial-advertise-peer-urls", "initial-cluster", "initial-cluster-token"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s needs --store", name)
				}
			}
			dir, err := federationDir(dir)
			if err != nil {
				return err
			}
			return restoreLocal(cmd.Context(), cmd.OutOrStdout(), set, dir)
		},
	}
	addDirFlag(cmd, &dir)
	cmd.Flags().StringVar(&store, "store", "", "make the data directory of a member of this etcd: hub, or the name of a cell")
	cmd.Flags().StringVar(&member.DataDir, "data-dir", "", "--data-dir of the member; it must not exist or be empty")
	cmd.Flags().StringVar(&member.Name, "name", "", "--name of the member")
	cmd.Flags().StringVar(&member.PeerURL, "initial-advertise-peer-urls", "", "--initial-advertise-peer-urls of the member")
	cmd.Flags().StringVar(&member.InitialCluster, "initial-cluster", "", "--initial-cluster of the member")
	cmd.Flags().StringVar(&member.Token, "initial-cluster-token", "etcd-cluster", "--initial-cluster-token of the member")
	return cmd
}

func restoreMember(ctx context.Context, out io.Writer, set *snapshot.Set, store string, member snapshot.Member) error {
	for name, value := range map[string]string{
		"data-dir": member.DataDir, "name": member.Name, "initial-advertise-peer-urls": member.PeerURL, "initial-cluster": member.InitialCluster,
	} {
		if value == "" {
			return fmt.Errorf("--store needs --%s, as the member of the etcd has it", name)
		}
	}
	restored, err := set.Restore(ctx, store, member)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has the store of %s as of %s, for member %s.\n", member.DataDir, store, set.Time.Format(time.RFC3339), member.Name)
	printKeptEpoch(out, restored)
	return nil
}

func printKeptEpoch(out io.Writer, restored snapshot.Restored) {
	if restored.EpochKept {
		fmt.Fprintf(out, "The hub encrypts its topology, so the epoch stays %d. Restart programs that have run since before the restore: they may have seen later versions.\n", restored.Epoch)
	}
}

func restoreLocal(ctx context.Context, out io.Writer, set *snapshot.Set, dir string) error {
	spec, ok, err := local.KeptSpec(dir)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s holds no federation", dir)
	}
	f, err := local.Open(dir, spec, local.Options{})
	if errors.Is(err, local.ErrInUse) {
		return errors.New("the federation is up: stop it with `cellplane down` first")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	restored, err := f.Restore(ctx, set)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The federation has the state of %s; `cellplane up` starts it.\n", set.Time.Format(time.RFC3339))
	for _, cell := range restored.Emptied {
		fmt.Fprintf(out, "The set does not have cell %s: it begins empty.\n", cell)
	}
	for _, kept := range restored.Kept {
		fmt.Fprintf(out, "The former store is in %s.\n", kept)
	}
	printKeptEpoch(out, restored.Restored)
	return nil
}
