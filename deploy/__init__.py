"""Deploy: what starts modelmill by itself, on one machine or many.

    prefect.yaml       the deployments of a fleet, for those who keep deployments in files
    databases.sql      the roles and databases of a fleet
    docker/            images, and a compose file with PostgreSQL, Prefect's server and a worker
    systemd/           server and worker as services of Linux
    windows/           a worker as a scheduled task of Windows
    kubernetes/        workers as a Deployment; server and database for those who have none
    azure-pipelines/   a sweep by hand and every night in Azure Pipelines
    github/            the same in GitHub Actions

Two modules serve them: `environment` makes the passwords, `service` runs a command where a service
manager gives it no environment, log or signal. docs/deploy*.md say how to use each file and what of
it was really run; the tests hold every file against the tool or schema that reads it, and against
the command line, the settings and the exit codes.
"""
