package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/cellstore"
)

func newCellsUnseal() *cobra.Command {
	var hub hubFlags
	cmd := &cobra.Command{
		Use:   "unseal FILE",
		Short: "Decrypt an object that was saved when a failed cell returned",
		Long: `Decrypt a file that ends in .sealed.json and print the object as YAML. A hub
manager writes such files when a failed cell returns that encrypts what it
stores, for objects that had not reached their backup. The keys are those that
the Cell names.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sealed, err := cellstore.ReadSealed(args[0])
			if err != nil {
				return err
			}
			api, err := hub.client()
			if err != nil {
				return err
			}
			pool := &cellconn.Pool{Hub: api, Secrets: api}
			defer pool.Close()
			store, err := pool.Store(cmd.Context(), sealed.Cell)
			if err != nil {
				return err
			}
			plain, err := store.Unseal(cmd.Context(), sealed)
			if err != nil {
				return err
			}
			text, err := cellstore.AsYAML(plain)
			if err != nil {
				return fmt.Errorf("reading the object in %s: %w", args[0], err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	hub.add(cmd)
	return cmd
}
