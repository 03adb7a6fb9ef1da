"""Deploy: files that run modelmill unattended, on one machine or many.

    prefect.yaml       the deployments of a fleet, if you keep deployments in files
    databases.sql      the roles and databases of a fleet
    docker/            images, and a compose file with PostgreSQL, Prefect's server and a worker
    systemd/           server and worker as services of Linux
    windows/           a worker as a scheduled task of Windows
    kubernetes/        workers as a Deployment; a server and a database if you have none
    azure-pipelines/   a sweep on demand and every night in Azure Pipelines
    github/            the same in GitHub Actions

Two modules serve them: `environment` makes the passwords; `service` runs a command under a service
manager that gives it no environment, log or stop signal. docs/deploy*.md say how to use each file
and which parts were really run. The tests check every file with the tool or schema that reads it,
and against the command line, the settings and the exit codes.
"""
