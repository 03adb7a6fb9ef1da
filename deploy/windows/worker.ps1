<#
.SYNOPSIS
Runs modelmill's worker on Windows as a scheduled task, which starts with the machine, needs no login,
is started again when it ends, and drains when it is stopped.

.DESCRIPTION
The worker is a console program, and Windows has no SIGTERM: the service manager would refuse it, and
the Task Scheduler kills programs to stop them. So the task runs `python -m deploy.service`, which
watches for a file and sends the worker a Ctrl-C when the file appears. -Action Stop creates that file
and waits until the worker has finished its models.

A shutdown of Windows does not wait for the worker, so run -Action Stop first. A killed worker costs
only time: other workers take over its models when their leases end.

.EXAMPLE
.\worker.ps1 -Action Install -Python C:\modelmill\Scripts\python.exe -EnvironmentFile .\worker.env

.EXAMPLE
.\worker.ps1 -Action Stop
#>
#Requires -Version 5.1
#Requires -RunAsAdministrator
[CmdletBinding()]
param(
    [Parameter(Mandatory)]
    [ValidateSet('Install', 'Start', 'Stop', 'Status', 'Remove')]
    [string] $Action,

    # The interpreter of the environment in which modelmill is installed.
    [string] $Python,

    # NAME=value lines: PREFECT_API_URL, PREFECT_API_AUTH_STRING, MODELMILL_STATE, ...
    [string] $EnvironmentFile,

    # Home, log and a copy of the environment file; only administrators and the account have access.
    [string] $Folder = (Join-Path $env:ProgramData 'modelmill'),

    # An account that needs no password: a built-in or a group managed service account (DOMAIN\name$).
    [string] $Account = 'NT AUTHORITY\LOCAL SERVICE',

    [string] $TaskName = 'modelmill worker',

    [ValidateRange(1, 1440)]
    [int] $DrainMinutes = 30
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$stopFile = Join-Path $Folder 'stop'
$secrets = Join-Path $Folder 'worker.env'

function Install-Worker {
    foreach ($file in $Python, $EnvironmentFile) {
        if (-not $file -or -not (Test-Path -LiteralPath $file -PathType Leaf)) {
            throw "-Python and -EnvironmentFile must name existing files; '$file' is not one"
        }
    }
    $null = New-Item -ItemType Directory -Path $Folder -Force
    # Restrict access before the secrets are copied into it.
    & icacls.exe $Folder /inheritance:r /grant:r '*S-1-5-32-544:(OI)(CI)F' '*S-1-5-18:(OI)(CI)F' "${Account}:(OI)(CI)M"
    if ($LASTEXITCODE -ne 0) { throw "cannot restrict the access to $Folder" }
    Copy-Item -LiteralPath $EnvironmentFile -Destination $secrets -Force

    $log = Join-Path $Folder 'worker.log'
    $homeFolder = Join-Path $Folder 'home'
    $arguments = "-m deploy.service --env-file `"$secrets`" --stop-file `"$stopFile`" --log `"$log`"" +
        " worker --home `"$homeFolder`" --drain-limit ${DrainMinutes}m"
    $what = New-ScheduledTaskAction -Execute (Resolve-Path -LiteralPath $Python).Path -Argument $arguments -WorkingDirectory $Folder
    # The second trigger starts the worker again within five minutes after any end: the task's own
    # restart setting ignores exit codes.
    $when = @(
        New-ScheduledTaskTrigger -AtStartup
        New-ScheduledTaskTrigger -Once -At (Get-Date) -RepetitionInterval (New-TimeSpan -Minutes 5)
    )
    $kind = if ($Account -like 'NT AUTHORITY\*') { 'ServiceAccount' } else { 'Password' }
    $who = New-ScheduledTaskPrincipal -UserId $Account -LogonType $kind -RunLevel Limited
    # By default, tasks run below normal priority and end after three days.
    $how = New-ScheduledTaskSettingsSet -MultipleInstances IgnoreNew -ExecutionTimeLimit ([TimeSpan]::Zero) -Priority 5 -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries -StartWhenAvailable
    $null = Register-ScheduledTask -TaskName $TaskName -Action $what -Trigger $when -Principal $who -Settings $how -Force
    Start-Worker
}

function Start-Worker {
    Remove-Item -LiteralPath $stopFile -Force -ErrorAction SilentlyContinue
    $null = Enable-ScheduledTask -TaskName $TaskName
    Start-ScheduledTask -TaskName $TaskName
}

function Stop-Worker {
    # Disable the task, so that its trigger does not start it again; a running one goes on.
    $null = Disable-ScheduledTask -TaskName $TaskName
    $null = New-Item -ItemType File -Path $stopFile -Force
    $deadline = (Get-Date).AddMinutes($DrainMinutes + 2)
    while ((Test-Running) -and (Get-Date) -lt $deadline) { Start-Sleep -Seconds 1 }
    if (Test-Running) {
        Stop-ScheduledTask -TaskName $TaskName
        throw "the worker did not end in time and was killed; other workers take over its models"
    }
    Remove-Item -LiteralPath $stopFile -Force -ErrorAction SilentlyContinue
}

function Test-Running {
    # Count running instances: the state of the task itself is 'Disabled' by now.
    $service = New-Object -ComObject Schedule.Service
    $service.Connect()
    $instances = $service.GetFolder('\').GetTask($TaskName).GetInstances(0)
    return $instances.Count -gt 0
}

function Show-Worker {
    Get-ScheduledTask -TaskName $TaskName | Get-ScheduledTaskInfo
    Get-Content -LiteralPath (Join-Path $Folder 'worker.log') -Tail 20 -ErrorAction SilentlyContinue
}

switch ($Action) {
    'Install' { Install-Worker }
    'Start' { Start-Worker }
    'Stop' { Stop-Worker }
    'Status' { Show-Worker }
    'Remove' {
        Stop-Worker
        Unregister-ScheduledTask -TaskName $TaskName -Confirm:$false
    }
}
